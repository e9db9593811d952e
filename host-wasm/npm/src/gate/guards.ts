/**
 * Releases permits that are no longer referenced, so that a forgotten permit holds its slot only until
 * garbage collection.
 */

/** The ticket of a permit, kept for the time after its guard is collected. */
interface Watched {
  ticket: number;
}

/**
 * An object that only its permit references, so both are collected together. It is reused by later permits,
 * because registering with a FinalizationRegistry is expensive.
 */
export class Guard {
  readonly watched: Watched = { ticket: -1 };
}

/** The guards of one wasm module's permits. */
export class Guards {
  readonly #forgotten: FinalizationRegistry<Watched> | undefined;
  /** Guards without a permit. */
  readonly #idle: Guard[] = [];

  /** `cancel` is called with the ticket of a permit that was collected unfinished. */
  constructor(cancel: (ticket: number) => void) {
    if (typeof FinalizationRegistry !== "undefined") {
      this.#forgotten = new FinalizationRegistry(({ ticket }) => cancel(ticket));
    }
  }

  /** Returns a guard for the permit with this ticket. Only the permit may reference it. */
  take(ticket: number): Guard {
    let guard = this.#idle.pop();
    if (guard === undefined) {
      guard = new Guard();
      this.#forgotten?.register(guard, guard.watched);
    }
    guard.watched.ticket = ticket;
    return guard;
  }

  /** Releases the guard of a finished permit. Returns its ticket. */
  release(guard: Guard): number {
    this.#idle.push(guard);
    return guard.watched.ticket;
  }
}
