/**
 * The waiting calls of one wasm module.
 *
 * The wasm module identifies every call by a ticket, a small number that is reused. A waiting call is stored
 * here as a {@link Waiter} under its ticket. Decisions are read right after the command that produced them.
 * Waiters are notified later, in a microtask of their own, so their callbacks may call the gate.
 */

import { DeniedError, denialReason, known } from "../errors.js";
import { offAbort, onAbort } from "./aborts.js";
import { Guards } from "./guards.js";
import type { Resource } from "./keys.js";

/** The parts of a wasm module that gates use. Each loaded module has calls and tickets of its own. */
export type GateModule = Pick<
  typeof import("../wasm/tidegate.js"),
  | "CallRetries"
  | "RequestGate"
  | "cancel"
  | "clusterInfo"
  | "denialChangesInMs"
  | "denialReason"
  | "finish"
  | "finishCall"
  | "headNames"
  | "isCluster"
  | "isShareName"
  | "maySend"
  | "nextCompletion"
  | "setNotify"
  | "readHead"
  | "readRefusal"
  | "storeCheck"
>;

/** A gate of the wasm module. */
export type Gate = InstanceType<GateModule["RequestGate"]>;

/** The wasm module's value for "no ticket" and "no more decisions": the smallest 32-bit integer. */
export const NONE = -(2 ** 31);

/**
 * What the core decides for a call that has ended: its end is final, it is made again, or its provider or
 * model is unavailable.
 */
export type AfterCall = number;
export const FINAL: AfterCall = 0;
export const AGAIN: AfterCall = 1;
export const UNAVAILABLE: AfterCall = 2;

/** The parameters of a permit request. */
export interface AcquireRequest {
  /** The number of the tenant's group; -1 for the group of the resource. */
  readonly group: number;
  /** The maximum wait; NaN for the default of the gate. */
  readonly timeoutMs: number;
  readonly input: number;
  readonly output: number;
  /** Called right before the request: passes the yield token of a pipeline task to the core. */
  readonly passYieldToken: (() => void) | undefined;
}

/**
 * A call that requests a permit. Exactly one of `granted` and `rejected` is called for each request. Neither
 * throws.
 */
export abstract class Waiter {
  readonly resource: Resource;
  /** The caller's signal. */
  readonly outer: AbortSignal | undefined;
  readonly request: AcquireRequest;
  /** The listener on the caller's signal. */
  onAbort: (() => void) | undefined = undefined;
  /** The ticket of its permit; `NONE` without a permit. */
  ticket = NONE;
  /** The next call in the acquire queue. */
  next: Waiter | undefined = undefined;

  constructor(resource: Resource, request: AcquireRequest, outer: AbortSignal | null | undefined) {
    this.resource = resource;
    this.request = request;
    this.outer = outer ?? undefined;
  }

  /** Called when the permit is granted; `ticket` is set. */
  abstract granted(): void;

  /** Called when the request is rejected. */
  abstract rejected(error: unknown): void;
}

/**
 * Callbacks of this promise run in a microtask. `queueMicrotask` does the same, but allocates three more
 * objects in Node.
 */
const settled = Promise.resolve();

/** The calls of one wasm module. */
export class Tickets {
  readonly module: GateModule;
  /** The guards of its permits. */
  readonly guards = new Guards((ticket) => this.cancel(ticket));
  /** Waiting calls, by ticket. */
  readonly #waiters: (Waiter | undefined)[] = [];
  /** Calls with a permit that were not notified yet. */
  #ready: Waiter[] = [];
  readonly #notifyReady = (): void => this.#notifyAll();
  /** Callbacks to run after any state change. */
  readonly #watchers = new Set<() => void>();
  #isAsked = false;

  constructor(module: GateModule) {
    this.module = module;
    // The module calls this for changes that no command caused.
    module.setNotify(() => this.#scheduleDelivery());
  }

  /** Returns the latest denial of the wasm module, which does not know that the process has left a shared limit. */
  latestDenial(resource: Resource): DeniedError {
    const { module } = this;
    return resource.shared?.denial() ?? new DeniedError(resource.name, denialReason(module.denialReason()), known(module.denialChangesInMs()));
  }

  /** Stores a call by the result of its `acquire`: as granted, rejected or waiting. */
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

  /** Reads up to `count` pending decisions. */
  deliver(count = Infinity): void {
    for (let left = count; left > 0; left -= 1) {
      const answer = this.module.nextCompletion();
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
        // An error affects this caller only: the remaining waiters are still notified.
        if (waiter.ticket !== NONE) this.cancel(waiter.ticket);
        waiter.rejected(error);
      }
    }
  }

  #notify(waiter: Waiter): void {
    const { outer, ticket } = waiter;
    const { shared } = waiter.resource;
    const isAborted = outer?.aborted === true;
    // The code of other callers may have run for seconds since the permit was granted.
    if (!isAborted && (shared === undefined || this.module.maySend(ticket))) return waiter.granted();
    waiter.ticket = NONE;
    this.cancel(ticket);
    if (isAborted) waiter.rejected(outer.reason);
    else shared?.acquireAgain(waiter);
  }

  /**
   * Rejects the waiting calls whose resource `isMeant` selects, with the error that `denied` returns. Returns
   * how many.
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

  /** Removes a call from the queue and rejects it with `reason`. */
  #removeWaiter(ticket: number, reason: unknown): void {
    const waiter = this.#waiters[ticket];
    this.#waiters[ticket] = undefined;
    if (waiter === undefined) return;
    this.cancel(ticket);
    waiter.rejected(reason);
  }

  /**
   * Cancels a ticket: removes a waiting call from the queue, or releases a permit with the outcome
   * `local_cancelled`.
   */
  cancel(ticket: number): void {
    const answer = this.module.cancel(ticket);
    if (answer > 0) this.deliver(answer);
    this.changed();
  }

  /**
   * Ends the call of a ticket. `retryAfterMs` is NaN without a Retry-After; `input` is below 0 if the usage
   * is not known.
   */
  finish(ticket: number, outcome: number, retryAfterMs: number, input: number, output: number): void {
    const answer = this.module.finish(ticket, outcome, retryAfterMs, input, output);
    if (answer > 0) this.deliver(answer);
    this.changed();
  }

  /**
   * Ends a call that is made again if it failed in an outage. Returns what follows: see {@link AfterCall}.
   */
  finishCall(ticket: number, outcome: number, retryAfterMs: number, input: number, output: number): AfterCall {
    const after = this.module.finishCall(ticket, outcome, retryAfterMs, input, output);
    this.#scheduleDelivery();
    return after;
  }

  /**
   * Calls `watcher` in a microtask after each possible change of state, until the returned function is
   * called.
   */
  watch(watcher: () => void): () => void {
    this.#watchers.add(watcher);
    return () => void this.#watchers.delete(watcher);
  }

  /** Schedules the watchers. Called after each command. */
  changed(): void {
    if (this.#watchers.size > 0) this.#scheduleDelivery();
  }

  /** Schedules a microtask that reads pending decisions and calls the watchers. */
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
