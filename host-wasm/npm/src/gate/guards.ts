/**
 * Permits that nobody can finish any more: they go back, so that a forgotten one costs time but never the
 * slot.
 */

/** The ticket of a permit, for when nobody can finish that any more. */
interface Watched {
  ticket: number;
}

/**
 * What goes when its permit goes, because only that has it. It serves one permit after the other: to be
 * watched costs more.
 */
export class Guard {
  readonly watched: Watched = { ticket: -1 };
}

/** The guards of one wasm module's permits. */
export class Guards {
  readonly #forgotten: FinalizationRegistry<Watched> | undefined;
  /** Those that have no permit. */
  readonly #idle: Guard[] = [];

  /** `cancel` is told the ticket of a permit that was forgotten. */
  constructor(cancel: (ticket: number) => void) {
    if (typeof FinalizationRegistry !== "undefined") {
      this.#forgotten = new FinalizationRegistry(({ ticket }) => cancel(ticket));
    }
  }

  /** A guard for the permit of this ticket. Nothing but the permit may keep it. */
  take(ticket: number): Guard {
    let guard = this.#idle.pop();
    if (guard === undefined) {
      guard = new Guard();
      this.#forgotten?.register(guard, guard.watched);
    }
    guard.watched.ticket = ticket;
    return guard;
  }

  /** The permit is finished: what its ticket was. */
  release(guard: Guard): number {
    this.#idle.push(guard);
    return guard.watched.ticket;
  }
}
