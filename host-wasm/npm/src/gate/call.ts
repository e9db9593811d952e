/** One call: its signal, the responses it observed, and its outcome. */

import { spanMs } from "../errors.js";
import type { CallResult } from "./ending.js";
import type { Resource } from "./keys.js";
import type { RetryState } from "./retries.js";
import { answerOfThrown } from "./thrown.js";
import { type AcquireRequest, type AfterCall, FINAL, NONE, Waiter } from "./tickets.js";
import { OwnSignal } from "./own_signal.js";
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

/**
 * Returns how a call ended. With undefined, the gate classifies the call itself.
 *
 * The gate reads the head of a fetch `Response`, and of an error with `status` and `headers` or with a
 * `response` that has them, as API clients throw. Other errors: one named `AbortError` is `local_cancelled`,
 * one named `TimeoutError` is `local_timeout`, a client's own timeout is `provider_timeout`, a failed or
 * broken connection is `connection_failed` or `provider_failure`, a certificate that Node does not accept is
 * `tls_failed`, and any other is `unexpected`. Any other
 * value is a `success`. Once the call's signal is aborted, every error is `provider_timeout` if
 * `callTimeoutMs` has passed, `local_timeout` if the signal's reason is a `TimeoutError`, and
 * `local_cancelled` otherwise.
 */
export type Classify<T> = (result: CallResult<T>) => Outcome | Completion | undefined;

/** One call, as its function receives it. */
export interface Call {
  /** The resource that is called. */
  readonly resource: Resource;
  /**
   * Aborted when the caller's signal is aborted and when `callTimeoutMs` has passed. Pass it to the code that
   * makes the call.
   */
  readonly signal: Signal;
  /**
   * Reads the head of a response that the function does not return: status, Retry-After and `x-ratelimit-*`.
   * The call then ends as the head states, even if the function throws after an error response.
   */
  observe(answer: AnswerHead): void;
  /**
   * Reports what the call used. It replaces the estimate in the budgets.
   *
   * @throws RangeError unless the numbers are whole and from 0 up
   */
  used(usage: Usage): void;
}

/** @internal The state of a call besides its ticket. Most calls have none. */
interface Notes {
  own: OwnSignal | undefined;
  signal: AbortSignal | undefined;
  /** The numbers read from the last observed head. */
  reading: Float64Array | undefined;
  /** The response with that head. */
  observed: AnswerHead | undefined;
  usage: readonly [number, number] | undefined;
}

/** @internal A call, from its permit request to its end. */
export abstract class CallUnderWay<T> extends Waiter implements Call {
  readonly classify: Classify<T> | undefined;
  /** Undefined: no timeout. */
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
    return this.notes?.own?.signal ?? this.outer ?? (this.noted.signal ??= new AbortController().signal);
  }

  get noted(): Notes {
    return (this.notes ??= { own: undefined, signal: undefined, reading: undefined, observed: undefined, usage: undefined });
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

  /** Reads the response that an error describes, unless the call has observed one itself. */
  #observeThrown(error: unknown): void {
    if (this.notes?.observed !== undefined) return;
    const answer = answerOfThrown(error);
    if (answer !== undefined) this.#recordHead(answer, headNumbers(answer, answer.body));
  }

  /** Reads the head and the body of an error response. */
  async observeBody(answer: Response): Promise<void> {
    this.observe(answer);
    const body = await errorText(answer);
    if (body !== undefined) this.noted.reading = headNumbers(answer, body);
  }

  used(usage: Usage): void {
    this.noted.usage = readUsage("used", usage);
  }

  /** Whether the last observed head was a rate limit. */
  get isRefused(): boolean {
    return this.notes?.reading?.[0] === RATE_LIMITED;
  }

  /** Starts the timeout of the call. */
  begin(): void {
    if (this.timeoutMs !== undefined) this.noted.own = new OwnSignal(this.outer, this.timeoutMs);
  }

  /** Called when the call has ended. */
  protected endSignal(own: OwnSignal): void {
    own.unlink();
  }

  /** Ends the call with `value`. */
  succeeded(value: T): AfterCall {
    const own = this.classify && classified(this.classify, { value });
    if (own !== undefined) return this.#end(own.outcome, own.retryAfterMs, own);
    try {
      // A head is read once: its rate limits are out of date by the time the body has ended.
      if (isResponse(value) && this.notes?.observed !== value) this.observe(value);
    } catch {
      return this.#end(UNEXPECTED, NaN);
    }
    const reading = this.notes?.reading;
    return this.#end(reading?.[0] ?? SUCCESS, reading?.[1] ?? NaN);
  }

  /**
   * Ends the call with `error`. Its outcome is `otherwise` if the error does not determine one.
   * `isProviderTurn`: the client was waiting for the provider.
   */
  failed(error: unknown, otherwise: number, isProviderTurn = true): AfterCall {
    const own = this.classify && classified<T>(this.classify, { error });
    if (own !== undefined) return this.#end(own.outcome, own.retryAfterMs, own);
    this.#observeThrown(error);
    const [outcome = SUCCESS, retryAfterMs = NaN] = this.notes?.reading ?? [];
    return this.#end(outcome === SUCCESS ? this.#meaningOf(error, otherwise, isProviderTurn) : outcome, retryAfterMs);
  }

  /**
   * Returns the outcome of an error without a response. The signal's reason counts, because an abort can
   * throw an error of any name.
   */
  #meaningOf(error: unknown, otherwise: number, isProviderTurn: boolean): number {
    const own = this.notes?.own;
    if (own?.isOver && isProviderTurn) return PROVIDER_TIMEOUT;
    const signal = own?.signal ?? this.outer;
    return signal?.aborted ? outcomeOfError(signal.reason, LOCAL_CANCELLED) : outcomeOfError(error, otherwise);
  }

  #end(outcome: number, retryAfterMs: number, own?: End): AfterCall {
    const { retryState, notes, ticket } = this;
    const { tickets } = this.resource;
    if (ticket === NONE) return FINAL;
    this.ticket = NONE;
    if (notes?.own !== undefined) {
      notes.own.stopTimer();
      this.endSignal(notes.own);
    }
    const [input, output] = own !== undefined && own.input >= 0 ? [own.input, own.output] : (notes?.usage ?? UNKNOWN);
    if (retryState !== undefined) retryState.ending = { outcome, retryAfterMs };
    if (retryState?.isRepeated !== true) {
      tickets.finish(ticket, outcome, retryAfterMs, input, output);
      return FINAL;
    }
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
