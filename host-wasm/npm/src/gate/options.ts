/** What a gate and its calls may be told. */

import type { TaskBinding, Classify } from "./call.js";
import type { AdaptiveSettings } from "./limits.js";
import type { GateEventKind } from "../events.js";
import type { Usage } from "../outcome.js";
import type { FetchResponse, Signal } from "../platform.js";

/** Settings of a gate: what its resources have unless they say otherwise, and how long calls may wait. */
export interface GateOptions extends AdaptiveSettings {
  /** The longest wait of a call that names none, in milliseconds from 0 up. Default: no bound. */
  readonly defaultTimeoutMs?: number | undefined;
  /**
   * Whether a provider that only fails counts as down: nothing goes out to it then but a probe now and then.
   * A refused key or an empty account denies calls for a minute at a time, to all models of the provider: a
   * gate whose calls have keys of different accounts wants
   * `false`, or a provider name for each account. Default: true.
   */
  readonly health?: boolean | undefined;
  /**
   * Whether calls are paced to the rates that a provider states in the headers of its answers
   * (`x-ratelimit-*`, `anthropic-ratelimit-*`,
   * `RateLimit`), where the resource has no budget of that dimension. Default: true.
   */
  readonly rateLimitHeaders?: boolean | undefined;
}

/** How a call asks. */
export interface AcquireOptions {
  /**
   * The longest wait, in milliseconds from 0 up: 0 is "now or not at all". Default: the gate's
   * `defaultTimeoutMs`.
   */
  readonly timeoutMs?: number | undefined;
  /**
   * Takes the call out of the queue when it is aborted; the promise is then rejected with its reason. `null`
   * is none.
   */
  readonly signal?: Signal | null | undefined;
  /** For whom: calls of one tenant share its weight. Default: nobody in particular. */
  readonly tenant?: string | undefined;
  /** What the call is expected to use of the token budgets. Default: nothing. */
  readonly estimate?: Usage | undefined;
}

/** How {@link RequestGate.run} makes a call. */
export interface RunOptions<T = unknown> extends AcquireOptions {
  /**
   * How long the call itself may take, in milliseconds from 0 up; then its signal is aborted with a
   * `TimeoutError`, and it counts as a `provider_timeout`, like any answer that does not come. The slot is
   * held until the function has ended all the same. Default: no bound.
   */
  readonly callTimeoutMs?: number | undefined;
  /** Says how the call ended, where the gate cannot know. */
  readonly classify?: Classify<T> | undefined;
  /**
   * How often the call is made again that failed: 5xx, a timeout of the provider or of `callTimeoutMs`, no
   * connection. The first pause is 1 s, each next one twice as long, up to a minute. A call that was rate
   * limited was only too early: it is made again after the pause that the provider asked for, as often as it
   * takes, and does not count. What fails while the provider is down is made again once that is back. A whole
   * number; bound the time by `signal`. A request whose body is a stream is sent once. Default: 0, nothing is
   * made again.
   */
  readonly retries?: number | undefined;
}

/** How {@link RequestGate.fetch} makes a call. Its signal is that of the request. */
export interface FetchOptions extends Omit<RunOptions<FetchResponse>, "signal"> {
  /**
   * What holds the slot: the whole answer, or only its head. A provider that counts calls at once counts a
   * stream until it ends: `"head"` is for one that counts requests or tokens per time alone, and for long
   * downloads. Default: `"body"`.
   */
  readonly hold?: "body" | "head" | undefined;
  /**
   * How long a body holds its slot that waits for its reader, in milliseconds from 0 up. A body waits once
   * 256 KiB of it are there that nobody has taken. Its slot then goes back as if it had ended, an event
   * `body_left_unread` says so, and it can still be read. Default: 2000.
   */
  readonly bodyIdleMs?: number | undefined;
}

/** Runs `fn` with the arguments behind it: see {@link RequestGate.limit}. */
export type LimitFunction = <Args extends readonly unknown[], T>(
  fn: (...args: Args) => T | PromiseLike<T>,
  ...args: Args
) => Promise<T>;

/** What {@link RequestGate.subscribe} wants to hear. */
export interface SubscribeOptions {
  /** The kinds of events. Default: all. */
  readonly kinds?: readonly GateEventKind[] | undefined;
}

/** @internal How a pipeline's task says in whose name it asks. */
export const taskBinding: unique symbol = Symbol("on behalf");

/** @internal */
export interface BoundOptions extends AcquireOptions {
  readonly [taskBinding]?: TaskBinding | undefined;
}

/** @internal What a call asks that asks for nothing in particular. */
export const NO_OPTIONS = Object.freeze({});

export const TRY_NAMES = ["tenant", "estimate"];
export const ACQUIRE_NAMES = ["timeoutMs", "signal", ...TRY_NAMES];
export const RUN_NAMES = [...ACQUIRE_NAMES, "callTimeoutMs", "classify", "retries"];
export const HELD_NAMES = [...RUN_NAMES, "hold", "bodyIdleMs"];
export const FETCH_NAMES = HELD_NAMES.filter((name) => name !== "signal");
