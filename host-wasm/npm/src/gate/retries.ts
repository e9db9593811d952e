/** Calls that are made again. */

import { DeniedError, whole } from "../errors.js";
import type { TaskBinding, CallResult, Ending } from "./call.js";
import type { Resource } from "./keys.js";
import { type AfterCall, FINAL, type GateModule, UNAVAILABLE } from "./tickets.js";
import { CONNECTION_FAILED, PROVIDER_FAILURE, PROVIDER_TIMEOUT, SUCCESS } from "../outcome.js";
import { isResponse, cancelBody } from "../response.js";

/** @internal How a try of a call that may be made again ended, and what it brought. */
export interface AttemptResult<T> {
  readonly result: CallResult<T>;
  readonly ending: Ending;
}

/**
 * @internal What there is of a call that a task makes or that may be made again. Most calls are neither, and
 * have none.
 */
export interface RetryState {
  /** Hears how the call ended, if a task makes it. */
  readonly ended: TaskBinding["ended"];
  /** Whether it is made again after an outage, as the core decides. */
  readonly isRepeated: boolean;
  readonly retries: Retries | undefined;
  /** How the latest try ended. */
  ending: Ending;
}

/**
 * @internal The retryState of a call that is made like this; undefined for one that is made once, and for no
 * task.
 */
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

/** @internal The core's backoff of one call, made when it first fails. */
export class Retries {
  readonly #resource: Resource;
  readonly #retries: number;
  #backoff: InstanceType<GateModule["CallRetries"]> | undefined;

  constructor(resource: Resource, retries: number) {
    this.#resource = resource;
    this.#retries = retries;
  }

  /** In how many milliseconds a call that ended so is made again; NaN if its end is final. */
  after({ outcome, retryAfterMs }: Ending): number {
    if (outcome === SUCCESS) return NaN;
    this.#backoff ??= new this.#resource.tickets.module.CallRetries(this.#retries);
    return this.#backoff.afterCall(outcome, retryAfterMs);
  }
}

/** @internal In how many milliseconds a call is made again whose try has ended; NaN if it is over. */
export function retryInMs({ ending, retries }: RetryState, after: AfterCall): number {
  return after === FINAL && retries !== undefined ? retries.after(ending) : NaN;
}

/**
 * @internal Whether a failed try is nobody's fault: the core lets it stand for now, or keeps it for later.
 */
export function isUnavailable({ ending: { outcome } }: RetryState, after: AfterCall): boolean {
  const saysNothing = outcome === PROVIDER_FAILURE || outcome === PROVIDER_TIMEOUT || outcome === CONNECTION_FAILED;
  return after === UNAVAILABLE && saysNothing;
}

/** @internal Whether a call that was to be made again is not: its failure was its own. */
export function isRequestAtFault(error: unknown): boolean {
  return error instanceof DeniedError && error.reason === "request_at_fault";
}

/** Lets go of an answer that nobody will see. */
export function discard({ result }: AttemptResult<unknown>): void {
  if ("value" in result && isResponse(result.value)) void cancelBody(result.value);
}
