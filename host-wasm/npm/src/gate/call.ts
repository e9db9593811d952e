/** What is known of one call, and what its end means. */

import { spanMs } from "../errors.js";
import type { Resource } from "./keys.js";
import type { RetryState } from "./retries.js";
import { answerOfThrown } from "./thrown.js";
import { type AcquireRequest, type AfterCall, FINAL, NONE, Waiter } from "./tickets.js";
import { endTimeout, startTimeout, type Timeout } from "./timeout.js";
import {
  type Completion,
  type End,
  LOCAL_CANCELLED,
  type Outcome,
  outcomeOfError,
  PROVIDER_TIMEOUT,
  RATE_LIMITED,
  readEnd,
  readUsage,
  SUCCESS,
  UNEXPECTED,
  type Usage,
} from "../outcome.js";
import { type AnswerHead, errorText, headNumbers, isResponse, notesOf } from "../response.js";
import type { Signal } from "../platform.js";

/** How the function of a call ended: with a value, or with what it threw. */
export type CallResult<T> = { readonly value: T } | { readonly error: unknown };

/**
 * Says how a call ended. Undefined leaves it to the gate.
 *
 * A fetch `Response` is read by its head; so is an error that has `status` and `headers`, or a `response`
 * that has them, as those of API clients do. Of the other errors, one whose `name` is `AbortError` is
 * `local_cancelled`, one that is called `TimeoutError` is `local_timeout`, a client's own timeout is
 * `provider_timeout`, a connection that failed or broke is `connection_failed` or `provider_failure`, and any
 * other is `unexpected`. Any other value is a `success`. Once the call's signal is aborted, an error of
 * whatever name is `provider_timeout` if `callTimeoutMs` is over, `local_timeout` if the signal's reason is a
 * `TimeoutError`, and `local_cancelled` otherwise.
 */
export type Classify<T> = (result: CallResult<T>) => Outcome | Completion | undefined;

/** What the function of a call is given. */
export interface Call {
  /** What is called. */
  readonly resource: Resource;
  /**
   * Aborted when the caller's signal is, and when `callTimeoutMs` is over. Hand it to whatever makes the
   * call.
   */
  readonly signal: Signal;
  /**
   * Reads the head of an answer that the function does not return: by its status, Retry-After and
   * `x-ratelimit-*`. The call then ends as the head says, also if the function throws after a refusal.
   */
  observe(answer: AnswerHead): void;
  /**
   * What the call used: it takes the place of the estimate in the budgets.
   *
   * @throws RangeError for what is no whole number from 0 up
   */
  used(usage: Usage): void;
}

/** @internal What is known of a call beside its ticket; most calls have none of it. */
interface Notes {
  timeout: Timeout | undefined;
  signal: AbortSignal | undefined;
  /** What a head has said, in numbers. */
  reading: Float64Array | undefined;
  /** Whose head that was. */
  observed: AnswerHead | undefined;
  usage: readonly [number, number] | undefined;
}

/** @internal How a call ended, in numbers: its outcome, and the wait that the provider asked for, or NaN. */
export interface Ending {
  readonly outcome: number;
  readonly retryAfterMs: number;
}

/** @internal In whose name a pipeline's task asks. */
export interface TaskBinding {
  /** Called right before the wasm module is asked: it lends the gate the task's tie. */
  readonly lendYieldToken: () => void;
  /**
   * Hears how a call ended, with what it threw, if it did: how a task's calls are made that are made again
   * after an outage.
   */
  readonly ended?: ((ending: Ending, error: unknown) => void) | undefined;
}

/** @internal A call that waits for its permit, and then has it. */
export abstract class CallUnderWay<T> extends Waiter implements Call {
  readonly classify: Classify<T> | undefined;
  /** Undefined for no bound. */
  readonly timeoutMs: number | undefined;
  /** @internal */
  notes: Notes | undefined = undefined;
  readonly retryState: RetryState | undefined;

  constructor(
    resource: Resource,
    request: AcquireRequest,
    outer: AbortSignal | null | undefined,
    classify: Classify<T> | undefined,
    timeoutMs: number | undefined,
    retryState: RetryState | undefined,
  ) {
    super(resource, request, outer);
    this.classify = classify;
    this.timeoutMs = timeoutMs === undefined ? undefined : spanMs("callTimeoutMs", timeoutMs);
    this.retryState = retryState;
  }

  get signal(): AbortSignal {
    return this.notes?.timeout?.controller.signal ?? this.outer ?? (this.noted.signal ??= new AbortController().signal);
  }

  get noted(): Notes {
    return (this.notes ??= { timeout: undefined, signal: undefined, reading: undefined, observed: undefined, usage: undefined });
  }

  observe(answer: AnswerHead): void {
    this.#recordHead(answer, headNumbers(answer));
  }

  #recordHead(answer: AnswerHead, numbers: Float64Array): void {
    const { noted } = this;
    noted.reading = numbers;
    noted.observed = answer;
    const notes = notesOf(numbers);
    if (notes !== undefined && this.ticket !== NONE) this.resource.registry.applyRateLimits(this.ticket, notes);
  }

  /** Reads the answer that an error of an API client is about, unless the call has read one itself. */
  #observeThrown(error: unknown): void {
    if (this.notes?.observed !== undefined) return;
    const answer = answerOfThrown(error);
    if (answer !== undefined) this.#recordHead(answer, headNumbers(answer, answer.body));
  }

  /** Reads what the body of a refusal says beside its head. */
  async observeBody(answer: Response): Promise<void> {
    this.observe(answer);
    const body = await errorText(answer);
    if (body !== undefined) this.noted.reading = headNumbers(answer, body);
  }

  used(usage: Usage): void {
    this.noted.usage = readUsage("used", usage);
  }

  /** Whether the latest head was a refusal for too many calls. */
  get isRefused(): boolean {
    return this.notes?.reading?.[0] === RATE_LIMITED;
  }

  /** The time that the call may take begins. */
  begin(): void {
    if (this.timeoutMs !== undefined) this.noted.timeout = startTimeout(this.outer, this.timeoutMs);
  }

  /** The call brought `value`. */
  succeeded(value: T): AfterCall {
    const own = this.classify && classified(this.classify, { value });
    if (own !== undefined) return this.#end(own.outcome, own.retryAfterMs, own);
    try {
      // A head is read once: what it says of the rates is old by the time the body has ended.
      if (isResponse(value) && this.notes?.observed !== value) this.observe(value);
    } catch {
      return this.#end(UNEXPECTED, NaN);
    }
    const reading = this.notes?.reading;
    return this.#end(reading?.[0] ?? SUCCESS, reading?.[1] ?? NaN);
  }

  /**
   * The call ended in `error`, which means `otherwise` unless it says more itself. `isProviderTurn`: it was the
   * provider who had to do something.
   */
  failed(error: unknown, otherwise: number, isProviderTurn = true): AfterCall {
    const own = this.classify && classified<T>(this.classify, { error });
    if (own !== undefined) return this.#end(own.outcome, own.retryAfterMs, own);
    this.#observeThrown(error);
    const [outcome = SUCCESS, retryAfterMs = NaN] = this.notes?.reading ?? [];
    return this.#end(outcome === SUCCESS ? this.#meaningOf(error, otherwise, isProviderTurn) : outcome, retryAfterMs);
  }

  /** What an error means where no head says it. Whoever aborts a call may do it with a reason of any name. */
  #meaningOf(error: unknown, otherwise: number, isProviderTurn: boolean): number {
    const timeout = this.notes?.timeout;
    if (timeout?.isOver && isProviderTurn) return PROVIDER_TIMEOUT;
    const signal = timeout?.controller.signal ?? this.outer;
    return signal?.aborted ? outcomeOfError(signal.reason, LOCAL_CANCELLED) : outcomeOfError(error, otherwise);
  }

  #end(outcome: number, retryAfterMs: number, own?: End): AfterCall {
    const { retryState, notes, ticket } = this;
    const { tickets } = this.resource;
    if (ticket === NONE) return FINAL;
    this.ticket = NONE;
    if (notes?.timeout !== undefined) endTimeout(notes.timeout, this.outer);
    const [input, output] = own !== undefined && own.input >= 0 ? [own.input, own.output] : (notes?.usage ?? UNKNOWN);
    if (retryState !== undefined) retryState.ending = { outcome, retryAfterMs };
    if (retryState?.isRepeated !== true) {
      tickets.finish(ticket, outcome, retryAfterMs, input, output);
      return FINAL;
    }
    // The next try is another call.
    this.notes = undefined;
    return tickets.finishCall(ticket, outcome, retryAfterMs, input, output);
  }
}

const UNKNOWN = [-1, 0] as const;

function classified<T>(classify: Classify<T>, result: CallResult<T>): End | undefined {
  try {
    const reading = classify(result);
    return reading === undefined ? undefined : readEnd(reading);
  } catch (error) {
    console.error("tidegate: `classify` failed; the call is classified as if there were none.", error);
    return undefined;
  }
}
