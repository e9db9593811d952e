/** Retries of calls. */

import { DeniedError, whole } from "../errors.js";
import type { CallResult, Ending, TaskBinding } from "./ending.js";
import type { Resource } from "./keys.js";
import { AGAIN, type AfterCall, FINAL, type GateModule, UNAVAILABLE, type Waiter } from "./tickets.js";
import { CONNECTION_FAILED, PROVIDER_FAILURE, PROVIDER_TIMEOUT, SUCCESS } from "../outcome.js";
import { isResponse, cancelBody } from "../response.js";

/** @internal One attempt of a call that may be retried, with its permit. */
export interface Attempt<T> {
  /** Makes the call. Never rejects. */
  make(): Promise<CallResult<T>>;
  /**
   * Ends the attempt with its result. Returns what follows; undefined if the result is final and the attempt
   * ends later.
   */
  end(result: CallResult<T>): AfterCall | undefined;
  /** Releases what the attempt and its result hold. Called if the result is not returned to the caller. */
  discard(result: CallResult<T>): void;
}

/**
 * @internal Requests a permit for a call. `isAfterOutage`: for another attempt of the call that has just
 * failed, for which the core has kept a place.
 */
export type Ask = (call: Waiter, isAfterOutage: boolean) => void;

/** @internal An attempt and its result. */
export interface Made<T, A extends Attempt<T>> {
  readonly attempt: A;
  readonly result: CallResult<T>;
}

/**
 * @internal Makes attempts of a call until the end of one is final. Returns the last one.
 *
 * `ask` requests a permit for the next attempt. `isAfterOutage`: the core has kept a place for it. It belongs
 * to the call that ended last, so `ask` is called in the same turn as {@link Attempt.end}.
 *
 * @throws (as a rejection) what `ask` rejects with, and DeniedError if the provider is unavailable
 */
export async function attemptUntilFinal<T, A extends Attempt<T>>(
  resource: Resource,
  state: RetryState | undefined,
  signal: AbortSignal | null | undefined,
  ask: (isAfterOutage: boolean) => Promise<A>,
): Promise<Made<T, A>> {
  /** The failed attempt, while the next one waits for its permit. */
  let kept: (Made<T, A> & { readonly ending: Ending }) | undefined;
  for (;;) {
    let attempt: A;
    try {
      attempt = await ask(kept !== undefined);
    } catch (error) {
      if (kept !== undefined && isRequestAtFault(error)) {
        reportEnd(state, kept.ending, kept.result);
        return kept;
      }
      kept?.attempt.discard(kept.result);
      throw error;
    }
    kept?.attempt.discard(kept.result);
    kept = undefined;
    const result = await attempt.make();
    const after = attempt.end(result);
    if (after === undefined || state === undefined) return { attempt, result };
    if (isUnavailable(state, after)) {
      attempt.discard(result);
      throw new DeniedError(resource.name, "unavailable", undefined);
    }
    if (after === AGAIN) {
      kept = { attempt, result, ending: state.ending };
      continue;
    }
    const pauseMs = retryInMs(state, after);
    if (Number.isNaN(pauseMs)) {
      reportEnd(state, state.ending, result);
      return { attempt, result };
    }
    attempt.discard(result);
    await new Promise<void>((resolve, reject) => {
      resource.registry.pauses.begin(resource, pauseMs, signal ?? undefined, resolve, reject);
    });
  }
}

/** Reports the end of a call to its task, if it belongs to one. */
function reportEnd(state: RetryState | undefined, ending: Ending, result: CallResult<unknown>): void {
  state?.ended?.(ending, "error" in result ? result.error : undefined);
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

/** Returns the milliseconds until the next attempt of a call that has ended; NaN if there is none. */
function retryInMs({ ending, retries }: RetryState, after: AfterCall): number {
  return after === FINAL && retries !== undefined ? retries.after(ending) : NaN;
}

/** Whether a call failed because its provider is unavailable, and not through a fault of its own. */
function isUnavailable({ ending: { outcome } }: RetryState, after: AfterCall): boolean {
  const saysNothing = outcome === PROVIDER_FAILURE || outcome === PROVIDER_TIMEOUT || outcome === CONNECTION_FAILED;
  return after === UNAVAILABLE && saysNothing;
}

/** Whether the retry of a call was denied because the call itself is at fault. */
function isRequestAtFault(error: unknown): boolean {
  return error instanceof DeniedError && error.reason === "request_at_fault";
}

/** @internal Cancels the body of a response that is not returned to the caller. */
export function discardBody(result: CallResult<unknown>): void {
  if ("value" in result && isResponse(result.value)) void cancelBody(result.value);
}
