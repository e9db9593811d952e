// Modules that come from the server only once they are needed.

/** A wait longer than this is shown, in real ms. */
export const FELT_MS = 250;

/** Something could not be loaded. */
export class NotLoaded extends Error {
  /** @param what the subject of the message */
  constructor(what: string) {
    super(`${what} could not be loaded: the server does not answer, or has a newer version. Try again, or load the page again.`);
  }
}

/** Returns what `load` imports. Rejects with `NotLoaded`. */
export async function fetched<T>(what: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch {
    throw new NotLoaded(what);
  }
}
