/** The timeout of a call. */

import { offAbort, onAbort } from "./aborts.js";

/** A running timeout of one call. */
export interface OwnSignal {
  /** Whether the time has passed. */
  isOver: boolean;
  readonly controller: AbortController;
  readonly onAbort: () => void;
  timer: ReturnType<typeof setTimeout> | undefined;
}

/** The longest delay that a timer holds. */
const LONGEST_DELAY_MS = 2 ** 31 - 1;

/** Starts the timeout of a call. */
export function startSignal(outer: AbortSignal | undefined, timeoutMs: number): OwnSignal {
  const controller = new AbortController();
  const timeout: OwnSignal = { isOver: false, controller, onAbort: () => controller.abort(outer?.reason), timer: undefined };
  if (outer !== undefined) onAbort(outer, timeout.onAbort);
  const until = performance.now() + timeoutMs;
  const arm = (): void => {
    const left = Math.ceil(until - performance.now());
    if (left > 0) {
      timeout.timer = setTimeout(arm, Math.min(left, LONGEST_DELAY_MS));
      return;
    }
    timeout.isOver = !controller.signal.aborted;
    controller.abort(new DOMException(`the call took longer than its ${timeoutMs} ms`, "TimeoutError"));
  };
  arm();
  return timeout;
}

/** Stops the timeout. */
export function endSignal({ timer, onAbort: listener }: OwnSignal, outer: AbortSignal | undefined): void {
  if (timer !== undefined) clearTimeout(timer);
  if (outer !== undefined) offAbort(outer, listener);
}
