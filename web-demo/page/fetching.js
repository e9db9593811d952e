// @ts-check
// Modules that come from the server only once they are wanted.

/** A wait longer than this is told, in real ms. */
export const FELT_MS = 250;

/** Something could not be loaded. */
export class NotLoaded extends Error {
  /** @param {string} what is called so @param {boolean} isOutdated another try does not help, only loading the page again */
  constructor(what, isOutdated) {
    super(`${what} could not be loaded: the server ${isOutdated ? "has a newer version. Load the page again." : "does not answer."}`);
    this.isOutdated = isOutdated;
  }
}

/** How often each was tried in vain. @type {Record<string, number>} */
const failures = {};

/** The module at this path of the page. Rejects with `NotLoaded`. @param {string} what is called so @param {string} path */
export async function fetched(what, path) {
  // A browser may keep in mind that an address could not be loaded: another try has another one.
  const again = failures[path] ? `?again=${failures[path]}` : "";
  try {
    return await import(`./${path}${again}`);
  } catch (error) {
    failures[path] = (failures[path] ?? 0) + 1;
    // It came, and asks the rest of the page for what that does not have.
    throw new NotLoaded(what, error instanceof SyntaxError);
  }
}
