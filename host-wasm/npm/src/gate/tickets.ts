/**
 * Who waits for which answer.
 *
 * The wasm module names every call by a ticket, a small number that is used again. A call leaves a {@link
 * Waiter} here under its ticket. Answers are taken up in one go, right after the command that brought them;
 * who was answered is told in one turn of its own, later, so whoever is called may do anything.
 */

import { DeniedError, denialReason, known } from "../errors.js";
import { offAbort, onAbort } from "./aborts.js";
import { Guards } from "./guards.js";
import type { Resource } from "./keys.js";

/** What a wasm module has for gates. Each that is loaded has calls, and tickets, of its own. */
export type GateModule = Pick<
  typeof import("../wasm/tidegate.js"),
  | "CallRetries"
  | "RequestGate"
  | "cancel"
  | "denialChangesInMs"
  | "denialReason"
  | "finish"
  | "finishCall"
  | "headNames"
  | "nextNews"
  | "onTurn"
  | "readHead"
  | "readRefusal"
>;

/** The wasm module's "no ticket" and "no more news": the smallest number of 32 bits. */
export const NONE = -(2 ** 31);

/**
 * What becomes of a call that has ended, by the core: it ended so, it is made again, its provider or model
 * cannot be used any more.
 */
export type AfterCall = number;
export const FINAL: AfterCall = 0;
export const AGAIN: AfterCall = 1;
export const UNAVAILABLE: AfterCall = 2;

/** What a call asks for. */
export interface AcquireRequest {
  /** The number of its tenant's group; -1 for that of the resource. */
  readonly group: number;
  /** The longest wait; NaN for that of the gate. */
  readonly timeoutMs: number;
  readonly input: number;
  readonly output: number;
  /** Called right before the wasm module is asked: lends it the tie of a pipeline's task. */
  readonly lendYieldToken: (() => void) | undefined;
}

/** A call that asks. It is told of its answer once, and throws nothing. */
export abstract class Waiter {
  readonly resource: Resource;
  /** The caller's signal. */
  readonly outer: AbortSignal | undefined;
  readonly request: AcquireRequest;
  /** What listens to it. */
  onAbort: (() => void) | undefined = undefined;
  /** That of its permit, while it has one. */
  ticket = NONE;
  /** The call that asks after it. */
  next: Waiter | undefined = undefined;

  constructor(resource: Resource, request: AcquireRequest, outer: AbortSignal | null | undefined) {
    this.resource = resource;
    this.request = request;
    this.outer = outer ?? undefined;
  }

  /** It may go out, with its ticket. */
  abstract granted(): void;

  /** It may not. */
  abstract rejected(error: unknown): void;
}

/**
 * What follows it has a turn of its own: as `queueMicrotask` does it, for which Node makes three objects
 * more.
 */
const settled = Promise.resolve();

/** The calls of one wasm module. */
export class Tickets {
  readonly module: GateModule;
  /** Of its permits. */
  readonly guards = new Guards((ticket) => this.cancel(ticket));
  /** Those that wait, by ticket. */
  readonly #waiters: (Waiter | undefined)[] = [];
  /** Those that have a permit and are not told yet. */
  #ready: Waiter[] = [];
  readonly #notifyReady = (): void => this.#notifyAll();
  /** Who is to be called after anything may have happened. */
  readonly #watchers = new Set<() => void>();
  #isAsked = false;

  constructor(module: GateModule) {
    this.module = module;
    // What happens in turns of the module's own.
    module.onTurn(() => this.#scheduleDelivery());
  }

  /** The denial that the wasm module has just answered. */
  latestDenial(resource: Resource): DeniedError {
    const { module } = this;
    return new DeniedError(resource.name, denialReason(module.denialReason()), known(module.denialChangesInMs()));
  }

  /** Puts a call where it belongs by the answer to its `acquire`. */
  addWaiter(waiter: Waiter, answer: number): void {
    if (answer >= 0) return this.#makeReady(waiter, answer);
    if (answer === NONE) return waiter.rejected(this.latestDenial(waiter.resource));
    const ticket = ~answer;
    this.#waiters[ticket] = waiter;
    const { outer } = waiter;
    if (outer !== undefined) {
      waiter.onAbort = () => this.#removeWaiter(ticket, outer.reason);
      onAbort(outer, waiter.onAbort);
    }
  }

  /** Takes up the answers that are there, `count` of them at most. */
  deliver(count = Infinity): void {
    for (let left = count; left > 0; left -= 1) {
      const answer = this.module.nextNews();
      if (answer === NONE) return;
      const ticket = answer < 0 ? ~answer : answer;
      const waiter = this.#waiters[ticket];
      this.#waiters[ticket] = undefined;
      if (waiter === undefined) continue;
      stopListening(waiter);
      if (answer < 0) waiter.rejected(this.latestDenial(waiter.resource));
      else this.#makeReady(waiter, ticket);
    }
  }

  #makeReady(waiter: Waiter, ticket: number): void {
    waiter.ticket = ticket;
    if (this.#ready.push(waiter) === 1) void settled.then(this.#notifyReady);
  }

  #notifyAll(): void {
    const those = this.#ready;
    this.#ready = [];
    for (const waiter of those) {
      try {
        this.#notify(waiter);
      } catch (error) {
        // It is this caller's own, and the others are still to be told.
        if (waiter.ticket !== NONE) this.cancel(waiter.ticket);
        waiter.rejected(error);
      }
    }
  }

  #notify(waiter: Waiter): void {
    const { outer } = waiter;
    if (outer === undefined || !outer.aborted) return waiter.granted();
    const { ticket } = waiter;
    waiter.ticket = NONE;
    this.cancel(ticket);
    waiter.rejected(outer.reason);
  }

  /**
   * Turns away those who wait and are meant, with what `denied` makes of their resource. Answers how many.
   */
  clear(isMeant: (resource: Resource) => boolean, denied: (resource: Resource) => unknown): number {
    let count = 0;
    this.#waiters.forEach((waiter, ticket) => {
      if (waiter === undefined || !isMeant(waiter.resource)) return;
      stopListening(waiter);
      this.#removeWaiter(ticket, denied(waiter.resource));
      count += 1;
    });
    return count;
  }

  /** A call leaves the queue, and is told why. */
  #removeWaiter(ticket: number, reason: unknown): void {
    const waiter = this.#waiters[ticket];
    this.#waiters[ticket] = undefined;
    if (waiter === undefined) return;
    this.cancel(ticket);
    waiter.rejected(reason);
  }

  /** Gives a ticket up: a call that waits leaves the queue, a permit goes back as local cancelled. */
  cancel(ticket: number): void {
    const answer = this.module.cancel(ticket);
    if (answer > 0) this.deliver(answer);
    this.changed();
  }

  /** Ends the call of a ticket; `retryAfterMs` is NaN for none, `input` below 0 for what is not known. */
  finish(ticket: number, outcome: number, retryAfterMs: number, input: number, output: number): void {
    const answer = this.module.finish(ticket, outcome, retryAfterMs, input, output);
    if (answer > 0) this.deliver(answer);
    this.changed();
  }

  /**
   * The same for a call that is made again if it failed in an outage. What becomes of it: {@link AfterCall}.
   */
  finishCall(ticket: number, outcome: number, retryAfterMs: number, input: number, output: number): AfterCall {
    const after = this.module.finishCall(ticket, outcome, retryAfterMs, input, output);
    this.#scheduleDelivery();
    return after;
  }

  /**
   * Calls `watcher` in a turn of its own after anything may have happened; until the returned function is
   * called.
   */
  watch(watcher: () => void): () => void {
    this.#watchers.add(watcher);
    return () => void this.#watchers.delete(watcher);
  }

  /** After each command: whoever watches is to hear of what it did. */
  changed(): void {
    if (this.#watchers.size > 0) this.#scheduleDelivery();
  }

  /** Asks for a turn in which answers and events are handed on. */
  #scheduleDelivery(): void {
    if (this.#isAsked) return;
    this.#isAsked = true;
    void settled.then(() => {
      this.#isAsked = false;
      this.deliver();
      for (const watcher of [...this.#watchers]) watcher();
    });
  }
}

function stopListening(waiter: Waiter): void {
  const { outer } = waiter;
  if (outer && waiter.onAbort) offAbort(outer, waiter.onAbort);
}
