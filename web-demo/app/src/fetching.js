// @ts-check
// Modules that come from the server only once they are wanted.

/** A wait longer than this is told, in real ms. */
export const FELT_MS = 250;

/** A server that takes longer than this to say what became of a file does not answer, in real ms. */
const ANSWER_MS = 5_000;

/** What became of a file that was not loaded. @typedef {"outdated" | "gone" | "unanswered" | number} Fate a number is the error that the server answers with */

/** Something could not be loaded. */
export class NotLoaded extends Error {
  /** @param {string} what is called so @param {Fate} fate */
  constructor(what, fate) {
    super(`${what} could not be loaded: ${inWords(fate)}`);
    /** Another try does not help, only loading the page again. */
    this.isOutdated = fate === "outdated" || fate === "gone";
  }
}

/** @param {Fate} fate */
function inWords(fate) {
  if (fate === "outdated") return "the server has a newer version. Load the page again.";
  if (fate === "gone") return "its file is not there any more, most likely because a newer version was installed. Load the page again.";
  return fate === "unanswered" ? "the server does not answer." : `the server answers with an error (${fate}).`;
}

/** How often each was tried in vain. @type {Record<string, number>} */
const failures = {};

/** The module at this path of the page. Rejects with `NotLoaded`. @param {string} what is called so @param {string} path */
export async function fetched(what, path) {
  const since = performance.now();
  // A browser may keep in mind that an address could not be loaded: another try has another one.
  const again = failures[path] ? `?again=${failures[path]}` : "";
  try {
    return await import(`./${path}${again}`);
  } catch (error) {
    failures[path] = (failures[path] ?? 0) + 1;
    // It came, and asks the rest of the page for what that does not have.
    throw new NotLoaded(what, error instanceof SyntaxError ? "outdated" : await fateOf(path, since));
  }
}

/** What became of a file that the browser could not load, which does not say why: the server is asked.
 * @param {string} path @param {number} since when it was first asked for, as `performance.now()` counts @returns {Promise<Fate>} */
export async function fateOf(path, since) {
  try {
    const { status, headers } = await fetch(path, { method: "HEAD", cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
    // Some hosts have a page of their own for what is not there.
    const isPage = headers.get("content-type")?.startsWith("text/html");
    return fateBy(isPage && status < 400 ? 404 : status) ?? fateBy(worstSince(since)) ?? "unanswered";
  } catch {
    return "unanswered";
  }
}

/** @param {number} status @returns {Fate | undefined} */
function fateBy(status) {
  // Those hosts do not say what there is without sending it.
  if (status < 400 || status === 405 || status === 501) return undefined;
  return status === 404 || status === 410 ? "gone" : status;
}

/** The file itself may be there, and not one that it needs. @param {number} since */
function worstSince(since) {
  const loads = /** @type {PerformanceResourceTiming[]} */ (performance.getEntriesByType("resource"));
  return Math.max(0, ...loads.map(({ startTime, responseStatus }) => (startTime >= since ? (responseStatus ?? 0) : 0)));
}
