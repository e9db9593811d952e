/**
 * Calls that are about to ask for their permits.
 *
 * A program that makes many calls in one go begins none of them before its turn is over. A permit that was
 * granted at once would be held all that time, and the limit would take it for the time that the provider
 * needs. So calls ask when the turn is over, a few at a time, and those that may go out do so in between.
 */

import type { GateModule, Tickets, Waiter } from "./tickets.js";

/** A gate of the wasm module. */
export type Gate = InstanceType<GateModule["RequestGate"]>;

/** How many calls ask before others get their turn. */
const AT_ONCE = 64;

/** What follows it has a turn of its own. */
const settled = Promise.resolve();

/** The calls of one gate that have not asked yet, in the order of their coming. */
export class AcquireQueue {
  readonly #tickets: Tickets;
  readonly #core: () => Gate;
  /** The first and the last of them: each leads to the next. */
  #first: Waiter | undefined;
  #last: Waiter | undefined;
  readonly #turn = (): void => {
    this.#askSome(AT_ONCE);
    if (this.#first !== undefined) void settled.then(this.#turn);
  };

  constructor(tickets: Tickets, core: () => Gate) {
    this.#tickets = tickets;
    this.#core = core;
  }

  /** Asks for a permit as soon as the turn is over, or before any other command. */
  enqueue(waiter: Waiter): void {
    if (this.#last === undefined) {
      this.#first = waiter;
      void settled.then(this.#turn);
    } else {
      this.#last.next = waiter;
    }
    this.#last = waiter;
  }

  /**
   * Asks for a permit at once; `isAgain` says that it is for the call that ended last, which the core has
   * kept.
   */
  acquire(waiter: Waiter, isAgain: boolean): void {
    const { number } = waiter.resource;
    const { group, timeoutMs, input, output, lendYieldToken } = waiter.request;
    const core = this.#core();
    lendYieldToken?.();
    const answer = isAgain
      ? core.acquireAgain(number, group, timeoutMs, input, output)
      : core.acquire(number, group, timeoutMs, input, output);
    this.#tickets.changed();
    this.#tickets.addWaiter(waiter, answer);
  }

  /** Lets all of them ask: what a command does must not depend on whether the turn is over. */
  flush(): void {
    if (this.#first !== undefined) this.#askSome(Infinity);
  }

  #askSome(count: number): void {
    for (let left = count; left > 0; left -= 1) {
      const waiter = this.#first;
      if (waiter === undefined) return;
      this.#first = waiter.next;
      waiter.next = undefined;
      if (this.#first === undefined) this.#last = undefined;
      this.#ask(waiter);
    }
  }

  #ask(waiter: Waiter): void {
    const { outer } = waiter;
    try {
      if (outer?.aborted) waiter.rejected(outer.reason);
      else this.acquire(waiter, false);
    } catch (error) {
      waiter.rejected(error);
    }
  }
}
