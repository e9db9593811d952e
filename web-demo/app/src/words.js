// @ts-check
// What both the page and its worker say alike.

/** What an error says. @param {unknown} error */
export const wordsOf = (error) => (error instanceof Error ? error.message : String(error));
