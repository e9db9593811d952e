/** Errors, and checks of values from callers. */

import type { DenialReason as CoreDenialReason } from "./wasm/tidegate.js";
import { DENIAL_REASONS } from "./wasm/tidegate_names.js";

/**
 * Why a call was denied.
 *
 * | reason | meaning |
 * | --- | --- |
 * | `no_capacity` | the limit or the provider's cap is reached |
 * | `cooldown` | the resource cools down after a rate limit |
 * | `budget_exhausted` | a rate budget is spent |
 * | `queued_waiters_ahead` | an earlier call goes first |
 * | `queue_timeout` | `timeoutMs` passed while it waited |
 * | `cancelled` | the call was cancelled, or its pipeline run stops |
 * | `shutdown` | the gate was shut down, or freed while the call waited |
 * | `unregistered` | the key was never registered with this gate |
 * | `outage` | the provider is down: only single probes are sent |
 * | `unavailable` | the provider or model cannot be used: the key is rejected, the account is exhausted, the model does not exist, or an outage lasts too long |
 * | `request_at_fault` | the call is not made again, because the provider accepts other calls |
 * | `paced` | the limit spaces calls in time; fewer calls are in flight than it allows |
 * | `paused` | {@link RequestGate.pause} is in force |
 */
export type DenialReason = Exclude<CoreDenialReason, "use_fallback">;

const REASON_TEXTS: Readonly<Record<DenialReason, string>> = {
  no_capacity: "the limit of calls in flight is reached",
  cooldown: "the resource cools down after a rate limit",
  budget_exhausted: "a rate budget is spent",
  queued_waiters_ahead: "an earlier call goes first",
  queue_timeout: "the deadline passed while waiting",
  cancelled: "the call was cancelled, or its pipeline run stops",
  shutdown: "the gate is shut down",
  unregistered: "it is not registered with this gate",
  outage: "the provider is down",
  unavailable: "the provider or model cannot be used",
  request_at_fault: "the call is not made again, because the provider accepts other calls",
  paced: "calls are spaced in time",
  paused: "it is paused",
};

/** @internal Returns the reason with this number. */
export function denialReason(number: number): DenialReason {
  // `use_fallback` concerns calls with alternatives, which this package does not make.
  return DENIAL_REASONS[number] as DenialReason;
}

/**
 * A call was denied. `acquire` and `run` reject with it, and `tryAcquire` throws it where waiting cannot
 * help.
 *
 * ```ts
 * import { DeniedError, RequestGate } from "tidegate";
 *
 * const gate = new RequestGate();
 * gate.register("provider/model", { maxParallel: 1 });
 * using held = await gate.acquire("provider/model");
 * try {
 *   await gate.acquire("provider/model", { timeoutMs: 0 });
 * } catch (error) {
 *   if (!(error instanceof DeniedError)) throw error;
 *   console.log(error.reason); // queue_timeout
 * }
 * ```
 */
export class DeniedError extends Error {
  override readonly name = "DeniedError";
  /** The requested key, such as `provider/model`. */
  readonly key: string;
  /** Why the call was denied. */
  readonly reason: DenialReason;
  /** The milliseconds until capacity next changes without a call ending; undefined if that is not known. */
  readonly changesInMs: number | undefined;

  /** @internal */
  constructor(key: string, reason: DenialReason, changesInMs?: number, text: string = REASON_TEXTS[reason]) {
    super(`${key}: ${text}${changesInMs === undefined ? "" : ` (the next change is in ${inWords(changesInMs)})`}`);
    this.key = key;
    this.reason = reason;
    this.changesInMs = changesInMs;
  }
}

/**
 * The limit of a resource cannot be shared: `RequestGate.share` rejects with it. The message states what the server
 * expects, and has no password.
 */
export class ShareError extends Error {
  override readonly name = "ShareError";
  /** The key, such as `provider/model`. */
  readonly key: string;

  /** @internal */
  constructor(key: string, why: string) {
    super(`cannot share the limit of ${key}: ${why}`);
    this.key = key;
  }
}

/** An object was used after its `free()`. */
export class FreedError extends Error {
  override readonly name = "FreedError";

  /** @internal */
  constructor(what: string) {
    super(`this ${what} was freed and can no longer be used`);
  }
}

/** @internal Formats a duration: `1.2 s`, `35 ms`. */
export function inWords(ms: number): string {
  if (ms < 1_000) return `${Math.ceil(ms)} ms`;
  if (ms < 120_000) return `${(ms / 1_000).toFixed(1)} s`;
  return `${(ms / 60_000).toFixed(0)} min`;
}

/** @internal Converts NaN, the core's "none", to `undefined`. */
export function known(value: number | undefined): number | undefined {
  return value === undefined || Number.isNaN(value) ? undefined : value;
}

/** The longest duration that the core can add to an instant, in milliseconds: 292 years. */
const LONGEST_MS = 2 ** 63 / 1e6;

function mustBeNumber(what: string, value: unknown): number {
  if (typeof value !== "number") throw new TypeError(`${what} must be a number, not ${shown(value)}`);
  return value;
}

/** @internal Formats a value for a message. */
export function shown(value: unknown): string {
  return typeof value === "string" ? JSON.stringify(value) : typeof value === "object" && value ? "an object" : String(value);
}

/** @internal Checks a whole number of 32 bits. */
export function whole(what: string, value: unknown): number {
  const number = mustBeNumber(what, value);
  if (Number.isInteger(number) && number >= 0 && number < 2 ** 32) return number;
  throw new RangeError(`${what} must be a whole number from 0 to 4294967295, not ${number}`);
}

/** @internal Checks a duration in milliseconds. */
export function spanMs(what: string, value: unknown): number {
  const number = mustBeNumber(what, value);
  if (number >= 0 && number < LONGEST_MS) return number;
  throw new RangeError(`${what} must be a number of milliseconds from 0 up, not ${number}`);
}

/** @internal Checks a number other than NaN. */
export function anyNumber(what: string, value: unknown): number {
  const number = mustBeNumber(what, value);
  if (!Number.isNaN(number)) return number;
  throw new RangeError(`${what} must be a number, not NaN`);
}

/** @internal Checks a string that is not empty. */
export function text(what: string, value: unknown): string {
  if (typeof value === "string" && value !== "") return value;
  throw new TypeError(`${what} must be a string that is not empty, not ${shown(value)}`);
}

/** @internal Throws for an object with a key that is not among `names`. */
export function onlyKnown(what: string, given: object, names: readonly string[]): void {
  for (const key of Object.keys(given)) {
    if (names.includes(key)) continue;
    // As in p-queue. Strict priority would starve the other calls.
    const isPriority = key === "priority" && names.includes("tenant");
    const hint = isPriority ? ' (calls of a tenant with a large weight go first: `tenant: "urgent"` with `gate.tenant("urgent", 10)`)' : "";
    throw new TypeError(`${what} has no setting \`${key}\`${hint}; there are ${names.join(", ")}`);
  }
}
