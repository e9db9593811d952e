/** The signal that a call has of its own. */

import { offAbort, onAbort } from "./aborts.js";

/** @internal The longest delay that a timer holds. */
export const LONGEST_DELAY_MS = 2 ** 31 - 1;

/**
 * Is aborted with the caller's signal, and when the time of the call has passed. What the call passes it to adds its
 * listeners here, so that a signal that many calls share has one listener.
 */
export class OwnSignal {
  /** Whether the time of the call has passed. */
  isOver = false;
  readonly #controller = new AbortController();
  readonly #outer: AbortSignal | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #onAbort = (): void => this.#controller.abort(this.#outer?.reason);

  /** Without `timeoutMs`, it is aborted with `outer` only. */
  constructor(outer: AbortSignal | undefined, timeoutMs: number | undefined) {
    this.#outer = outer;
    if (outer !== undefined) onAbort(outer, this.#onAbort);
    if (timeoutMs !== undefined) this.#arm(performance.now() + timeoutMs, timeoutMs);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  #arm(until: number, timeoutMs: number): void {
    const left = Math.ceil(until - performance.now());
    if (left > 0) {
      this.#timer = setTimeout(() => this.#arm(until, timeoutMs), Math.min(left, LONGEST_DELAY_MS));
      return;
    }
    this.isOver = !this.signal.aborted;
    this.#controller.abort(new DOMException(`the call took longer than its ${timeoutMs} ms`, "TimeoutError"));
  }

  /** Ends the time of the call. */
  stopTimer(): void {
    clearTimeout(this.#timer);
  }

  /** Ends the link to the caller's signal. */
  unlink(): void {
    if (this.#outer !== undefined) offAbort(this.#outer, this.#onAbort);
  }
}
