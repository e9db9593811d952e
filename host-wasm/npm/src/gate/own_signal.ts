/** The signal that a call has of its own. */

import { offAbort, onAbort } from "./aborts.js";

/** @internal The longest delay that a timer holds. */
export const LONGEST_DELAY_MS = 2 ** 31 - 1;

/** The signals of responses that are read after their calls have ended, by their bodies. */
const unheldBodies =
  typeof FinalizationRegistry === "undefined" ? undefined : new FinalizationRegistry<OwnSignal>((own) => own.unlink());

/**
 * Is aborted with the caller's signal, and when the time of the call has passed. What the call passes it to adds its
 * listeners here, so that a signal that many calls share has one listener.
 */
export class OwnSignal {
  /** Whether the time of the call has passed. */
  isOver = false;
  readonly #controller = new AbortController();
  readonly #links: (readonly [outer: AbortSignal, listener: () => void])[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Without `timeoutMs`, it is aborted with `outer` only. */
  constructor(outer: AbortSignal | undefined, timeoutMs: number | undefined) {
    if (outer !== undefined) this.link(outer);
    if (timeoutMs !== undefined) this.#arm(performance.now() + timeoutMs, timeoutMs);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Is aborted with one more signal, for the same reason. */
  link(outer: AbortSignal): void {
    const listener = (): void => this.#controller.abort(outer.reason);
    if (outer.aborted) return listener();
    onAbort(outer, listener);
    this.#links.push([outer, listener]);
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

  /** Ends the links to other signals. */
  unlink(): void {
    for (const [outer, listener] of this.#links.splice(0)) offAbort(outer, listener);
  }

  /** Ends them once a body is no longer referenced, which an abort ends until then; at once without a body. */
  unlinkAfter(body: ReadableStream | null): void {
    if (body === null) this.unlink();
    else unheldBodies?.register(body, this);
  }
}
