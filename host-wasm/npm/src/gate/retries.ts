/** Retries of calls. */

import { DeniedError, whole } from "../errors.js";
import type { TaskBinding, CallResult, Ending } from "./call.js";
import type { Resource } from "./keys.js";
import { type AfterCall, FINAL, type GateModule, UNAVAILABLE } from "./tickets.js";
import { CONNECTION_FAILED, PROVIDER_FAILURE, PROVIDER_TIMEOUT, SUCCESS } from "../outcome.js";
import { isResponse, cancelBody } from "../response.js";

/** @internal The result of one attempt of a call that may be retried. */
export interface AttemptResult<T> {
  readonly result: CallResult<T>;
  readonly ending: Ending;
}

/**
 * @internal The retry state of a call that belongs to a pipeline task or may be retried. Other calls have
 * none.
 */
export interface RetryState {
  /** Called with the end of the call, if it belongs to a task. */
  readonly ended: TaskBinding["ended"];
  /** Whether the core may have it made again after an outage. */
  readonly isRepeated: boolean;
  readonly retries: Retries | undefined;
  /** How the latest attempt ended. */
  ending: Ending;
}

/** @internal Returns the retry state of a call; undefined for a call without retries and without a task. */
export function retryStateOf(
  resource: Resource,
  retries: number | undefined,
  ended: TaskBinding["ended"],
  isRepeatable = true,
): RetryState | undefined {
  const number = retries === undefined ? 0 : whole("retries", retries);
  if (number === 0 && ended === undefined) return undefined;
  const backoff = number > 0 && isRepeatable ? new Retries(resource, number) : undefined;
  return { ended, isRepeated: isRepeatable, retries: backoff, ending: { outcome: SUCCESS, retryAfterMs: NaN } };
}

/** @internal The core's backoff of one call, created when the call first fails. */
export class Retries {
  readonly #resource: Resource;
  readonly #retries: number;
  #backoff: InstanceType<GateModule["CallRetries"]> | undefined;

  constructor(resource: Resource, retries: number) {
    this.#resource = resource;
    this.#retries = retries;
  }

  /** Returns the milliseconds until the next attempt; NaN if there is none. */
  after({ outcome, retryAfterMs }: Ending): number {
    if (outcome === SUCCESS) return NaN;
    this.#backoff ??= new this.#resource.tickets.module.CallRetries(this.#retries);
    return this.#backoff.afterCall(outcome, retryAfterMs);
  }
}

/**
 * @internal Returns the milliseconds until the next attempt of a call that has ended; NaN if there is none.
 */
export function retryInMs({ ending, retries }: RetryState, after: AfterCall): number {
  return after === FINAL && retries !== undefined ? retries.after(ending) : NaN;
}

/**
 * @internal Whether a call failed because its provider is unavailable, and not through a fault of its own.
 */
export function isUnavailable({ ending: { outcome } }: RetryState, after: AfterCall): boolean {
  const saysNothing = outcome === PROVIDER_FAILURE || outcome === PROVIDER_TIMEOUT || outcome === CONNECTION_FAILED;
  return after === UNAVAILABLE && saysNothing;
}

/** @internal Whether the retry of a call was denied because the call itself is at fault. */
export function isRequestAtFault(error: unknown): boolean {
  return error instanceof DeniedError && error.reason === "request_at_fault";
}

/** Cancels the body of a response that is not returned to the caller. */
export function discard({ result }: AttemptResult<unknown>): void {
  if ("value" in result && isResponse(result.value)) void cancelBody(result.value);
}
