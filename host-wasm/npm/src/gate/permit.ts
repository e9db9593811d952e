/// <reference lib="esnext.disposable" preserve="true" />
/** The right to make one call. */

import type { Guard } from "./guards.js";
import { inspect, type Resource } from "./keys.js";
import { type AcquireRequest, Waiter } from "./tickets.js";
import { type Completion, type Outcome, outcomeNumber, readEnd } from "../outcome.js";

/** `Symbol.dispose`, or a substitute where it is missing: only `using` then needs a polyfill. */
export const dispose: typeof Symbol.dispose = Symbol.dispose ?? (Symbol.for("Symbol.dispose") as typeof Symbol.dispose);

/**
 * The right to make one call. Release it with {@link Permit.finish} and the outcome of the call.
 *
 * A permit that is disposed of before it is finished, at the end of a `using` block, counts as a cancelled
 * call. So does, some time later, a permit that is no longer referenced. Permits outlive their gate.
 *
 * ```ts
 * import { RequestGate } from "tidegate";
 *
 * const gate = new RequestGate();
 * gate.register("provider/model", { maxParallel: 4 });
 * using permit = await gate.acquire("provider/model");
 * // ... make the call ...
 * permit.finish("success");
 * ```
 */
export class Permit {
  /** The resource that may be called. */
  readonly resource: Resource;
  /** Undefined once the permit is finished. */
  #guard: Guard | undefined;

  /** @internal */
  constructor(resource: Resource, ticket: number) {
    this.resource = resource;
    this.#guard = resource.tickets.guards.take(ticket);
  }

  /** Whether the permit was finished or disposed of. */
  get isFinished(): boolean {
    return this.#guard === undefined;
  }

  /**
   * Returns whether the call may be sent now. It is false only for a limit that several processes share, if the share
   * has expired since the permit was granted: dispose of the permit then, and acquire another one. Check it if
   * something else was awaited since; {@link RequestGate.run} and `fetch` check it themselves.
   */
  maySend(): boolean {
    const guard = this.#guard;
    return guard !== undefined && this.resource.tickets.module.maySend(guard.watched.ticket);
  }

  /**
   * Releases the slot with the outcome of the call. Returns false, and does nothing, if the permit is
   * finished already.
   *
   * @param end the outcome, alone or with what the provider asked for: `{ outcome: "rate_limited",
   * retryAfterMs: 2000 }`
   * @throws TypeError for an unknown outcome, RangeError for a number out of range; the permit is not
   * finished then
   */
  finish(end: Outcome | Completion): boolean {
    if (typeof end === "string") return this.#finish(outcomeNumber(end), NaN, -1, 0);
    const { outcome, retryAfterMs, input, output } = readEnd(end);
    return this.#finish(outcome, retryAfterMs, input, output);
  }

  #finish(outcome: number, retryAfterMs: number, input: number, output: number): boolean {
    const ticket = this.#take();
    if (ticket < 0) return false;
    this.resource.tickets.finish(ticket, outcome, retryAfterMs, input, output);
    return true;
  }

  /** Releases the slot as a cancelled call, unless the permit is finished already. */
  [dispose](): void {
    const ticket = this.#take();
    if (ticket >= 0) this.resource.tickets.cancel(ticket);
  }

  /** @internal */
  [inspect](): string {
    return `Permit for ${JSON.stringify(this.resource.name)}${this.isFinished ? " (finished)" : ""}`;
  }

  #take(): number {
    const guard = this.#guard;
    if (guard === undefined) return -1;
    this.#guard = undefined;
    return this.resource.tickets.guards.release(guard);
  }
}

/** @internal A call of {@link RequestGate.acquire}. */
export class Acquiring extends Waiter {
  readonly resolve: (permit: Permit) => void;
  readonly rejected: (error: unknown) => void;

  constructor(
    resource: Resource,
    request: AcquireRequest,
    signal: AbortSignal | null | undefined,
    resolve: (permit: Permit) => void,
    reject: (error: unknown) => void,
  ) {
    super(resource, request, signal);
    this.resolve = resolve;
    this.rejected = reject;
  }

  granted(): void {
    this.resolve(new Permit(this.resource, this.ticket));
  }
}
