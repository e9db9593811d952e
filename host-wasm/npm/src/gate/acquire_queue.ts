/**
 * Calls that have not requested their permits from the core yet.
 *
 * A program that makes many calls in one synchronous block starts none of them before the block ends. A
 * permit granted at once would be held during the block, and the limit algorithm would count that time as
 * latency of the provider. So permits are requested after the block, a few at a time, and granted calls start
 * in between.
 */

import type { Gate, Tickets, Waiter } from "./tickets.js";

/** How many permits are requested in one microtask. */
const AT_ONCE = 64;

/** Callbacks of this promise run in a microtask. */
const settled = Promise.resolve();

/** The calls of one gate that have not requested their permits yet, in order of arrival. */
export class AcquireQueue {
  readonly #tickets: Tickets;
  readonly #core: () => Gate;
  /** The ends of a linked list of waiters. */
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

  /** Requests a permit in the next microtask, or before the next command. */
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
   * Requests a permit at once. `isAgain`: for another attempt of the call that ended last, for which the core
   * has kept a place.
   */
  acquire(waiter: Waiter, isAgain: boolean): void {
    const { number, shared } = waiter.resource;
    const denial = shared?.denial();
    if (denial !== undefined) return waiter.rejected(denial);
    const { group, timeoutMs, input, output, passYieldToken } = waiter.request;
    const core = this.#core();
    passYieldToken?.();
    const answer = isAgain
      ? core.acquireAgain(number, group, timeoutMs, input, output)
      : core.acquire(number, group, timeoutMs, input, output);
    this.#tickets.changed();
    this.#tickets.addWaiter(waiter, answer);
  }

  /** Requests all permits now: the effect of a command must not depend on pending microtasks. */
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
