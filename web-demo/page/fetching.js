// @ts-check
// Modules that come from the server only once they are wanted.

/** Something could not be loaded: another try may do. */
export class NotLoaded extends Error {}

/** How often each was tried in vain. @type {Record<string, number>} */
const failures = {};

/** The module at this path of the page. Rejects with `NotLoaded`. @param {string} what it is called so @param {string} path */
export async function fetched(what, path) {
  // A browser may keep in mind that an address could not be loaded: another try has another one.
  const again = failures[path] ? `?again=${failures[path]}` : "";
  try {
    return await import(`./${path}${again}`);
  } catch {
    failures[path] = (failures[path] ?? 0) + 1;
    throw new NotLoaded(`${what} could not be loaded: the server does not answer.`);
  }
}
