/** Calls of {@link RequestGate.run}: functions called under a permit. */

import { DeniedError } from "../errors.js";
import { type Call, type CallResult, CallUnderWay, type Classify } from "./call.js";
import type { Resource } from "./keys.js";
import { discard, type RetryState, type AttemptResult, isRequestAtFault, isUnavailable, retryInMs } from "./retries.js";
import { answerOfThrown } from "./thrown.js";
import { type AcquireRequest, AGAIN, type AfterCall } from "./tickets.js";
import { outcomeOfConnection, UNEXPECTED } from "../outcome.js";
import { isReadableRefusal } from "../response.js";

/** @internal */
export interface CallSettings<T> {
  readonly signal?: AbortSignal | null | undefined;
  readonly classify?: Classify<T> | undefined;
  readonly callTimeoutMs?: number | undefined;
}

/** @internal The parts of a call that are used to retry it. */
export interface Rerun<T> {
  readonly retryState: RetryState;
  /** Requests a permit for the next attempt. `isAfterOutage`: the core has kept a place for it. */
  readonly ask: (call: Running<T>, isAfterOutage: boolean) => void;
  /** The failed attempt, while the next one waits for its permit. */
  kept: AttemptResult<T> | undefined;
}

/** @internal A function that is called once its call has a permit. */
export class Running<T> extends CallUnderWay<T> {
  readonly fn: (call: Call) => T | PromiseLike<T>;
  readonly resolve: (value: T) => void;
  readonly reject: (error: unknown) => void;
  readonly rerun: Rerun<T> | undefined;

  constructor(
    resource: Resource,
    request: AcquireRequest,
    fn: (call: Call) => T | PromiseLike<T>,
    { signal, classify, callTimeoutMs }: CallSettings<T>,
    resolve: (value: T) => void,
    reject: (error: unknown) => void,
    rerun: Rerun<T> | undefined,
  ) {
    super(resource, request, signal, classify, callTimeoutMs, rerun?.retryState);
    this.fn = fn;
    this.resolve = resolve;
    this.reject = reject;
    this.rerun = rerun;
  }

  granted(): void {
    if (this.rerun !== undefined) discardKept(this.rerun);
    this.begin();
    const { fn } = this;
    try {
      Promise.resolve(fn(this)).then(
        (value) => {
          if (isReadableRefusal(value) && this.notes?.observed !== value) void this.#observeFor(value, () => this.#made(value));
          else this.#made(value);
        },
        (error: unknown) => this.#threw(error),
      );
    } catch (error) {
      this.#threw(error);
    }
  }

  #made(value: T): void {
    const after = this.succeeded(value);
    if (this.rerun === undefined) this.resolve(value);
    else this.#attemptEnded(this.rerun, { value }, after);
  }

  #threw(error: unknown): void {
    const over = (): void => {
      const after = this.failed(error, outcomeOfConnection(error) ?? UNEXPECTED);
      if (this.rerun === undefined) this.reject(error);
      else this.#attemptEnded(this.rerun, { error }, after);
    };
    const response = this.notes?.observed === undefined ? answerOfThrown(error)?.response : undefined;
    if (isReadableRefusal(response)) void this.#observeFor(response, over);
    else over();
  }

  /** Reads an error response with its body, then calls `goOn`. */
  async #observeFor(answer: Response, goOn: () => void): Promise<void> {
    try {
      await this.observeBody(answer);
    } catch {
      // If the head cannot be read, the call counts as unexpected.
    }
    goOn();
  }

  rejected(error: unknown): void {
    const kept = this.rerun?.kept;
    if (kept !== undefined && isRequestAtFault(error)) return this.#settle(kept);
    if (kept !== undefined) discard(kept);
    this.reject(error);
  }

  #attemptEnded(rerun: Rerun<T>, result: CallResult<T>, after: AfterCall): void {
    const { ask, retryState } = rerun;
    const ended = { result, ending: retryState.ending };
    if (isUnavailable(retryState, after)) {
      discard(ended);
      this.reject(new DeniedError(this.resource.name, "unavailable", undefined));
    } else if (after === AGAIN) {
      rerun.kept = ended;
      ask(this, true);
    } else {
      const pauseMs = retryInMs(retryState, after);
      if (Number.isNaN(pauseMs)) return this.#settle(ended);
      discard(ended);
      this.resource.registry.pauses.begin(this.resource, pauseMs, this.outer, () => ask(this, false), this.reject);
    }
  }

  #settle({ result, ending }: AttemptResult<T>): void {
    this.retryState?.ended?.(ending, "error" in result ? result.error : undefined);
    if ("value" in result) this.resolve(result.value);
    else this.reject(result.error);
  }
}

function discardKept(rerun: { kept: AttemptResult<unknown> | undefined }): void {
  if (rerun.kept !== undefined) discard(rerun.kept);
  rerun.kept = undefined;
}
