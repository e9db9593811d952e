/** Calls of {@link RequestGate.run}: functions called under a permit. */

import { type Call, CallUnderWay, type Classify } from "./call.js";
import type { CallResult } from "./ending.js";
import type { Resource } from "./keys.js";
import { type Ask, type Attempt, attemptUntilFinal, discardBody, type RetryState } from "./retries.js";
import { answerOfThrown } from "./thrown.js";
import type { AcquireRequest, AfterCall } from "./tickets.js";
import { outcomeOfConnection, UNEXPECTED } from "../outcome.js";
import { isReadableRefusal } from "../response.js";

/** @internal */
export interface CallSettings<T> {
  readonly signal?: AbortSignal | null | undefined;
  readonly classify?: Classify<T> | undefined;
  readonly callTimeoutMs?: number | undefined;
}

/** A call of a function. */
abstract class FunctionCall<T> extends CallUnderWay<T> {
  readonly fn: (call: Call) => T | PromiseLike<T>;

  constructor(
    resource: Resource,
    request: AcquireRequest,
    fn: (call: Call) => T | PromiseLike<T>,
    { signal, classify, callTimeoutMs }: CallSettings<T>,
    retryState: RetryState | undefined,
  ) {
    super(resource, request, signal, classify, callTimeoutMs, retryState);
    this.fn = fn;
  }

  /** Reads a response that the function has returned and whose body can change the outcome. */
  protected readReturned(value: T): Promise<void> | undefined {
    return isReadableRefusal(value) && this.notes?.observed !== value ? this.#observeHeadAndBody(value) : undefined;
  }

  /** Reads such a response that an error carries. */
  protected readThrown(error: unknown): Promise<void> | undefined {
    const response = this.notes?.observed === undefined ? answerOfThrown(error)?.response : undefined;
    return isReadableRefusal(response) ? this.#observeHeadAndBody(response) : undefined;
  }

  async #observeHeadAndBody(answer: Response): Promise<void> {
    try {
      await this.observeBody(answer);
    } catch {
      // If the head cannot be read, the call counts as unexpected.
    }
  }

  /** Ends the call with what the function has thrown. */
  protected threw(error: unknown): AfterCall {
    return this.failed(error, outcomeOfConnection(error) ?? UNEXPECTED);
  }
}

/** @internal A function that is called once, when its call has a permit. */
export class Running<T> extends FunctionCall<T> {
  readonly resolve: (value: T) => void;
  readonly rejected: (error: unknown) => void;

  constructor(
    resource: Resource,
    request: AcquireRequest,
    fn: (call: Call) => T | PromiseLike<T>,
    settings: CallSettings<T>,
    resolve: (value: T) => void,
    reject: (error: unknown) => void,
  ) {
    super(resource, request, fn, settings, undefined);
    this.resolve = resolve;
    this.rejected = reject;
  }

  granted(): void {
    this.begin();
    const { fn } = this;
    try {
      Promise.resolve(fn(this)).then(
        (value) => this.#onReturned(value),
        (error: unknown) => this.#onThrown(error),
      );
    } catch (error) {
      this.#onThrown(error);
    }
  }

  #onReturned(value: T): void {
    const reading = this.readReturned(value);
    if (reading === undefined) this.#resolve(value);
    else void reading.then(() => this.#resolve(value));
  }

  #onThrown(error: unknown): void {
    const reading = this.readThrown(error);
    if (reading === undefined) this.#reject(error);
    else void reading.then(() => this.#reject(error));
  }

  #resolve(value: T): void {
    this.succeeded(value);
    this.resolve(value);
  }

  #reject(error: unknown): void {
    this.threw(error);
    this.rejected(error);
  }
}

/** One of the attempts of a call that may be retried. */
class RunAttempt<T> extends FunctionCall<T> implements Attempt<T> {
  readonly resolve: (attempt: RunAttempt<T>) => void;
  readonly rejected: (error: unknown) => void;

  constructor(
    resource: Resource,
    request: AcquireRequest,
    fn: (call: Call) => T | PromiseLike<T>,
    settings: CallSettings<T>,
    resolve: (attempt: RunAttempt<T>) => void,
    reject: (error: unknown) => void,
    retryState: RetryState,
  ) {
    super(resource, request, fn, settings, retryState);
    this.resolve = resolve;
    this.rejected = reject;
  }

  granted(): void {
    this.begin();
    this.resolve(this);
  }

  async make(): Promise<CallResult<T>> {
    const { fn } = this;
    let result: CallResult<T>;
    try {
      result = { value: await fn(this) };
    } catch (error) {
      result = { error };
    }
    await ("value" in result ? this.readReturned(result.value) : this.readThrown(result.error));
    return result;
  }

  end(result: CallResult<T>): AfterCall {
    return "value" in result ? this.succeeded(result.value) : this.threw(result.error);
  }

  discard(result: CallResult<T>): void {
    discardBody(result);
  }
}

/** @internal Calls `fn` under permits that `ask` requests, until the end of a call is final. */
export async function runUntilFinal<T>(
  resource: Resource,
  request: AcquireRequest,
  fn: (call: Call) => T | PromiseLike<T>,
  { signal, classify, callTimeoutMs }: CallSettings<T>,
  retryState: RetryState,
  ask: Ask,
): Promise<T> {
  // All attempts have the settings of the first, whatever its caller does with them.
  const settings: CallSettings<T> = { signal, classify, callTimeoutMs };
  const { result } = await attemptUntilFinal<T, RunAttempt<T>>(resource, retryState, signal, (isAfterOutage) =>
    new Promise((resolve, reject) => {
      ask(new RunAttempt(resource, request, fn, settings, resolve, reject, retryState), isAfterOutage);
    }),
  );
  if ("error" in result) throw result.error;
  return result.value;
}
