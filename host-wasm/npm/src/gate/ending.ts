/** How calls end, and how the task that makes a call receives its end. */

/** How the function of a call ended: with a value or with a thrown error. */
export type CallResult<T> = { readonly value: T } | { readonly error: unknown };

/** @internal How a call ended, in numbers: its outcome, and the wait that the provider asked for, or NaN. */
export interface Ending {
  readonly outcome: number;
  readonly retryAfterMs: number;
}

/** @internal Connects a permit request to the pipeline task that makes it. */
export interface TaskBinding {
  /** Called right before the request: passes the task's yield token to the core. */
  readonly passYieldToken: () => void;
  /**
   * Called with the end of a call and the error it threw, if any. Calls with this callback are made again
   * after an outage.
   */
  readonly ended?: ((ending: Ending, error: unknown) => void) | undefined;
}
