// What both the page and its worker say alike.

/** What an error says. */
export const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error));
