/** Options of a gate and of its calls. */

import type { Classify } from "./call.js";
import type { TaskBinding } from "./ending.js";
import type { GateEventKind } from "../events.js";
import type { Usage } from "../outcome.js";
import type { FetchResponse, Signal } from "../platform.js";

/** Options of a permit request. */
export interface AcquireOptions {
  /**
   * The longest wait, in milliseconds from 0 up; 0 requests a permit now or never. Default: the gate's
   * `defaultTimeoutMs`.
   */
  readonly timeoutMs?: number | undefined;
  /**
   * Removes the call from the queue when aborted, and rejects the promise with its reason. `null`: no signal.
   */
  readonly signal?: Signal | null | undefined;
  /** The tenant that the call belongs to. Calls of one tenant share its weight. Default: no tenant. */
  readonly tenant?: string | undefined;
  /** The expected use of token budgets. Default: none. */
  readonly estimate?: Usage | undefined;
}

/** Options of {@link RequestGate.run}. */
export interface RunOptions<T = unknown> extends AcquireOptions {
  /**
   * The longest duration of the call itself, in milliseconds from 0 up. Then its signal is aborted with a
   * `TimeoutError`, and the call counts as a `provider_timeout`. The function is not interrupted: pass
   * `call.signal` on to what it calls. The slot is held until the function has ended. Default: unlimited.
   */
  readonly callTimeoutMs?: number | undefined;
  /** Classifies the end of the call, where the gate cannot. */
  readonly classify?: Classify<T> | undefined;
  /**
   * How often a failed call is made again: after a 5xx, a timeout of the provider or of `callTimeoutMs`, or a
   * failed connection. The first pause is 1 s, each further one twice as long, up to a minute. A rate-limited
   * call is made again after the pause that the provider asked for, without a bound and without being
   * counted. In an outage, when the provider answers no call, a failed call is made again without being
   * counted, at most 30 s apart. It is rejected with a `DeniedError` (`unavailable`) after 10 minutes without
   * an answer. With `health: false`, every failure is counted. A whole number; `signal` bounds the total time.
   * A request whose body is a stream is sent once. Default: 0.
   */
  readonly retries?: number | undefined;
}

/** Options of {@link RequestGate.fetch}. Its signal is the one of the request. */
export interface FetchOptions extends Omit<RunOptions<FetchResponse>, "signal"> {
  /**
   * What holds the slot: the whole response, or its head only. A provider that limits concurrent calls counts
   * a stream until it ends. Choose `"head"` for a provider that only limits requests or tokens per time, and
   * for long downloads. Default: `"body"`.
   */
  readonly hold?: "body" | "head" | undefined;
  /**
   * How long a body that waits for its reader holds its slot, in milliseconds from 0 up. A body waits once
   * 256 KiB of it are buffered. The slot is then released as if the body had ended, and an event
   * `body_left_unread` is emitted. The body can still be read. Default: 2000.
   */
  readonly bodyIdleMs?: number | undefined;
}

/**
 * Options of {@link RequestGate.limit}. There is no `callTimeoutMs`: it aborts the signal of a call, which the
 * functions of a limit do not receive.
 */
export type LimitOptions = Omit<RunOptions, "callTimeoutMs" | "classify">;

/** Runs `fn` with the remaining arguments: see {@link RequestGate.limit}. */
export type LimitFunction = <Args extends readonly unknown[], T>(
  fn: (...args: Args) => T | PromiseLike<T>,
  ...args: Args
) => Promise<T>;

/** Options of {@link RequestGate.subscribe}. */
export interface SubscribeOptions {
  /** The kinds of events. Default: all. */
  readonly kinds?: readonly GateEventKind[] | undefined;
}

/** @internal The option that connects a request to a pipeline task. */
export const taskBinding: unique symbol = Symbol("task binding");

/** @internal */
export interface BoundOptions extends AcquireOptions {
  readonly [taskBinding]?: TaskBinding | undefined;
}

/** @internal The options of a call without options. */
export const NO_OPTIONS = Object.freeze({});

export const TRY_NAMES = ["tenant", "estimate"];
export const ACQUIRE_NAMES = ["timeoutMs", "signal", ...TRY_NAMES];
export const RUN_NAMES = [...ACQUIRE_NAMES, "callTimeoutMs", "classify", "retries"];
export const LIMIT_NAMES = [...ACQUIRE_NAMES, "retries"];
export const HELD_NAMES = [...RUN_NAMES, "hold", "bodyIdleMs"];
export const FETCH_NAMES = HELD_NAMES.filter((name) => name !== "signal");
