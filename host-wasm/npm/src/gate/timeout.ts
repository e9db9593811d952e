/** How long a call may take. */

import { offAbort, onAbort } from "./aborts.js";

/** The time that one call may take, which runs. */
export interface Timeout {
  /** Whether the time is over. */
  isOver: boolean;
  readonly controller: AbortController;
  readonly onAbort: () => void;
  timer: ReturnType<typeof setTimeout> | undefined;
}

/** The longest delay that a timer holds. */
const LONGEST_DELAY_MS = 2 ** 31 - 1;

/** Begins the time that a call may take. */
export function startTimeout(outer: AbortSignal | undefined, timeoutMs: number): Timeout {
  const controller = new AbortController();
  const timeout: Timeout = { isOver: false, controller, onAbort: () => controller.abort(outer?.reason), timer: undefined };
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

/** Ends it with its call. */
export function endTimeout({ timer, onAbort: listener }: Timeout, outer: AbortSignal | undefined): void {
  if (timer !== undefined) clearTimeout(timer);
  if (outer !== undefined) offAbort(outer, listener);
}
