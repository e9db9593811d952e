/** One call under a permit, from its beginning to its end. */

import type { Resource } from "./gate-keys.js";
import { outcomeOfError, RATE_LIMITED, readEnd, readUsage, SUCCESS, type Completion, type Outcome, type Usage } from "./outcome.js";
import { type AnswerHead, eachNote, headNumbers, isResponse } from "./response.js";

/** How the function of a call ended: with a value, or with what it threw. */
export type CallResult<T> = { readonly value: T } | { readonly error: unknown };

/**
 * Says how a call ended. Undefined leaves it to the gate.
 *
 * An error whose `name` is `AbortError` is `local_cancelled`, one that is called `TimeoutError` is `local_timeout`, any other is
 * `unexpected`; a fetch `Response` is read by its head; any other value is a `success`.
 */
export type Classify<T> = (result: CallResult<T>) => Outcome | Completion | undefined;

/** What the function of a call is given. */
export interface Call {
  /** What is called. */
  readonly resource: Resource;
  /** Aborted when the caller's signal is, and when `callTimeoutMs` is over. Hand it to whatever makes the call. */
  readonly signal: AbortSignal;
  /**
   * Reads the head of an answer that the function does not return: by its status, Retry-After and `x-ratelimit-*`. The call then
   * ends as the head says, also if the function throws after a refusal.
   */
  observe(answer: AnswerHead): void;
  /** What the call used: it takes the place of the estimate in the budgets. */
  used(usage: Usage): void;
}

/** @internal Takes over what was said about a budget of a resource. */
export type Correct = (
  resource: number,
  dimension: number,
  limit: number,
  remaining: number,
  resetMs: number,
) => void;

/** @internal */
export class CallUnderWay implements Call {
  readonly resource: Resource;
  readonly #correct: Correct;
  readonly #outer: AbortSignal | undefined;
  #controller: AbortController | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** What a head has said, in numbers. */
  #said: Float64Array | undefined;
  #used: readonly [number, number] | undefined;

  constructor(correct: Correct, resource: Resource, signal: AbortSignal | undefined, timeoutMs: number | undefined) {
    this.#correct = correct;
    this.resource = resource;
    this.#outer = signal;
    if (timeoutMs !== undefined) this.#limit(timeoutMs);
  }

  get signal(): AbortSignal {
    return this.#controller?.signal ?? this.#outer ?? (this.#controller = new AbortController()).signal;
  }

  #limit(timeoutMs: number): void {
    const controller = new AbortController();
    this.#controller = controller;
    if (this.#outer?.aborted) controller.abort(this.#outer.reason);
    this.#outer?.addEventListener("abort", this.#abort);
    const text = `the call took longer than its ${timeoutMs} ms`;
    const until = performance.now() + timeoutMs;
    const arm = (): void => {
      const left = Math.ceil(until - performance.now());
      if (left <= 0) controller.abort(new DOMException(text, "TimeoutError"));
      else this.#timer = setTimeout(arm, Math.min(left, 2 ** 31 - 1));
    };
    arm();
  }

  readonly #abort = (): void => this.#controller?.abort(this.#outer?.reason);

  observe(answer: AnswerHead): void {
    const numbers = headNumbers(answer);
    this.#said = numbers;
    if (!this.resource.hasBudgets) return;
    eachNote(numbers, ([dimension = 0, limit = NaN, remaining = NaN, resetMs = NaN]) =>
      this.#correct(this.resource.number, dimension, limit, remaining, resetMs),
    );
  }

  used(usage: Usage): void {
    this.#used = readUsage("used", usage);
  }

  /** Whether the latest head was a refusal for too many calls. */
  get isRefused(): boolean {
    return this.#said?.[0] === RATE_LIMITED;
  }

  /** Ends it: tells `finish` how. Never throws. */
  end<T>(
    result: CallResult<T>,
    classify: Classify<T> | undefined,
    otherwise: number,
    finish: (outcome: number, retryAfterMs: number, input: number, output: number) => void,
  ): void {
    if (this.#timer !== undefined) clearTimeout(this.#timer);
    this.#outer?.removeEventListener("abort", this.#abort);
    const own = classify && this.#ask(classify, result);
    const [input, output] = this.#used ?? [-1, 0];
    if (own !== undefined) {
      return finish(own.outcome, own.retryAfterMs, own.input < 0 ? input : own.input, own.input < 0 ? output : own.output);
    }
    if ("value" in result && isResponse(result.value)) this.observe(result.value);
    const [outcome = SUCCESS, retryAfterMs = NaN] = this.#said ?? [];
    const failed = "error" in result && outcome === SUCCESS;
    finish(failed ? outcomeOfError(result.error, otherwise) : outcome, retryAfterMs, input, output);
  }

  #ask<T>(classify: Classify<T>, result: CallResult<T>): ReturnType<typeof readEnd> | undefined {
    try {
      const said = classify(result);
      return said === undefined ? undefined : readEnd(said);
    } catch (error) {
      console.error("tidegate: `classify` failed; the call is classified as if there were none.", error);
      return undefined;
    }
  }
}
