/** One call under a permit, from its beginning to its end. */

import { DeniedError, spanMs } from "./errors.js";
import type { Resource } from "./gate-keys.js";
import { AGAIN, type AfterCall, FINAL, NONE, UNAVAILABLE, Waiter } from "./gate-tickets.js";
import {
  type Completion,
  type End,
  CONNECTION_FAILED,
  LOCAL_CANCELLED,
  type Outcome,
  outcomeOfError,
  PROVIDER_FAILURE,
  PROVIDER_TIMEOUT,
  RATE_LIMITED,
  readEnd,
  readUsage,
  SUCCESS,
  UNEXPECTED,
  type Usage,
} from "./outcome.js";
import { type AnswerHead, eachNote, errorText, headNumbers, isResponse, letGo, maySayMore } from "./response.js";

/** How the function of a call ended: with a value, or with what it threw. */
export type CallResult<T> = { readonly value: T } | { readonly error: unknown };

/**
 * Says how a call ended. Undefined leaves it to the gate.
 *
 * An error whose `name` is `AbortError` is `local_cancelled`, one that is called `TimeoutError` is `local_timeout`, any other is
 * `unexpected`; a fetch `Response` is read by its head; any other value is a `success`. Once the call's signal is aborted, an error
 * of whatever name is `local_timeout` if the signal's reason is a `TimeoutError`, and `local_cancelled` otherwise.
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
  /**
   * What the call used: it takes the place of the estimate in the budgets.
   *
   * @throws RangeError for what is no whole number from 0 up
   */
  used(usage: Usage): void;
}

/** @internal What is known of a call beside its ticket; most calls have none of it. */
interface Notes {
  limit: Limit | undefined;
  signal: AbortSignal | undefined;
  /** What a head has said, in numbers. */
  said: Float64Array | undefined;
  /** Whose head that was. */
  observed: AnswerHead | undefined;
  usage: readonly [number, number] | undefined;
}

/** @internal */
export interface HowToCall<T> {
  readonly signal?: AbortSignal | null | undefined;
  readonly classify?: Classify<T> | undefined;
  readonly callTimeoutMs?: number | undefined;
}

/** @internal How long a call may take. */
interface Limit {
  readonly controller: AbortController;
  readonly onAbort: () => void;
  timer: ReturnType<typeof setTimeout> | undefined;
}

/** @internal A call that waits for its permit, and then has it. */
export abstract class CallUnderWay<T> extends Waiter implements Call {
  readonly classify: Classify<T> | undefined;
  /** Undefined for no bound. */
  readonly timeoutMs: number | undefined;
  /** @internal */
  notes: Notes | undefined = undefined;
  /** Whether it is made again after an outage, as the core decides. */
  isRepeated = false;
  /** How it failed, while it is to be made again. */
  kept: CallResult<T> | undefined = undefined;

  constructor(
    resource: Resource,
    outer: AbortSignal | null | undefined,
    classify: Classify<T> | undefined,
    timeoutMs: number | undefined,
  ) {
    super(resource, outer);
    this.classify = classify;
    this.timeoutMs = timeoutMs === undefined ? undefined : spanMs("callTimeoutMs", timeoutMs);
  }

  get signal(): AbortSignal {
    return this.notes?.limit?.controller.signal ?? this.outer ?? (this.noted.signal ??= new AbortController().signal);
  }

  get noted(): Notes {
    return (this.notes ??= { limit: undefined, signal: undefined, said: undefined, observed: undefined, usage: undefined });
  }

  observe(answer: AnswerHead): void {
    const numbers = headNumbers(answer);
    const { noted } = this;
    noted.said = numbers;
    noted.observed = answer;
    const { book, hasBudgets, number } = this.resource;
    if (!hasBudgets) return;
    eachNote(numbers, ([dimension = 0, limit = NaN, remaining = NaN, resetMs = NaN]) =>
      book.correct(number, dimension, limit, remaining, resetMs),
    );
  }

  /** Reads what the body of a refusal says beside its head. */
  async observeBody(answer: Response): Promise<void> {
    this.observe(answer);
    const body = await errorText(answer);
    if (body !== undefined) this.noted.said = headNumbers(answer, body);
  }

  used(usage: Usage): void {
    this.noted.usage = readUsage("used", usage);
  }

  /** Whether the latest head was a refusal for too many calls. */
  get isRefused(): boolean {
    return this.notes?.said?.[0] === RATE_LIMITED;
  }

  /** The time that the call may take begins. */
  begin(): void {
    if (this.timeoutMs !== undefined) this.noted.limit = limited(this.outer, this.timeoutMs);
  }

  /** The call brought `value`. */
  succeeded(value: T): AfterCall {
    const own = this.classify && ask(this.classify, { value });
    if (own !== undefined) return this.#end(own.outcome, own.retryAfterMs, own);
    try {
      // A head is read once: what it says of the rates is old by the time the body has ended.
      if (isResponse(value) && this.notes?.observed !== value) this.observe(value);
    } catch {
      return this.#end(UNEXPECTED, NaN);
    }
    const said = this.notes?.said;
    return this.#end(said?.[0] ?? SUCCESS, said?.[1] ?? NaN);
  }

  /** The call ended in `error`, which means `otherwise` unless it says more itself. */
  failed(error: unknown, otherwise: number): AfterCall {
    const own = this.classify && ask<T>(this.classify, { error });
    if (own !== undefined) return this.#end(own.outcome, own.retryAfterMs, own);
    const [outcome = SUCCESS, retryAfterMs = NaN] = this.notes?.said ?? [];
    return this.#end(outcome === SUCCESS ? this.#meaningOf(error, otherwise) : outcome, retryAfterMs);
  }

  /** What an error means where no head says it. Whoever aborts a call may do it with a reason of any name. */
  #meaningOf(error: unknown, otherwise: number): number {
    const signal = this.notes?.limit?.controller.signal ?? this.outer;
    return signal?.aborted ? outcomeOfError(signal.reason, LOCAL_CANCELLED) : outcomeOfError(error, otherwise);
  }

  /** What a failed try comes to that the core lets stand for now, or keeps for later. */
  isNobodys(after: AfterCall): boolean {
    return after === UNAVAILABLE && this.#hasFailed;
  }

  /** Whether the latest try met a failure that says nothing of the request itself. */
  #hasFailed = false;

  #end(outcome: number, retryAfterMs: number, own?: End): AfterCall {
    const { notes, ticket } = this;
    if (ticket === NONE) return FINAL;
    this.ticket = NONE;
    if (this.isRepeated) {
      this.#hasFailed = outcome === PROVIDER_FAILURE || outcome === PROVIDER_TIMEOUT || outcome === CONNECTION_FAILED;
      const [input, output] = own !== undefined && own.input >= 0 ? [own.input, own.output] : (notes?.usage ?? UNKNOWN);
      if (notes?.limit !== undefined) lift(notes.limit, this.outer);
      // The next try is another call.
      this.notes = undefined;
      return this.resource.tickets.finishCall(ticket, outcome, retryAfterMs, input, output);
    }
    if (notes === undefined && own === undefined) {
      this.resource.tickets.finish(ticket, outcome, retryAfterMs, -1, 0);
      return FINAL;
    }
    if (notes?.limit !== undefined) lift(notes.limit, this.outer);
    const [input, output] = own !== undefined && own.input >= 0 ? [own.input, own.output] : (notes?.usage ?? UNKNOWN);
    this.resource.tickets.finish(ticket, outcome, retryAfterMs, input, output);
    return FINAL;
  }
}

const UNKNOWN = [-1, 0] as const;

function ask<T>(classify: Classify<T>, result: CallResult<T>): End | undefined {
  try {
    const said = classify(result);
    return said === undefined ? undefined : readEnd(said);
  } catch (error) {
    console.error("tidegate: `classify` failed; the call is classified as if there were none.", error);
    return undefined;
  }
}

/** The longest delay that a timer holds. */
const LONGEST_DELAY_MS = 2 ** 31 - 1;

/** Begins the time that a call may take. */
function limited(outer: AbortSignal | undefined, timeoutMs: number): Limit {
  const controller = new AbortController();
  const limit: Limit = { controller, onAbort: () => controller.abort(outer?.reason), timer: undefined };
  outer?.addEventListener("abort", limit.onAbort);
  const until = performance.now() + timeoutMs;
  const arm = (): void => {
    const left = Math.ceil(until - performance.now());
    if (left > 0) limit.timer = setTimeout(arm, Math.min(left, LONGEST_DELAY_MS));
    else controller.abort(new DOMException(`the call took longer than its ${timeoutMs} ms`, "TimeoutError"));
  };
  arm();
  return limit;
}

function lift({ timer, onAbort }: Limit, outer: AbortSignal | undefined): void {
  if (timer !== undefined) clearTimeout(timer);
  outer?.removeEventListener("abort", onAbort);
}

/** @internal A function that is called once its call has a permit. */
export class Running<T> extends CallUnderWay<T> {
  readonly fn: (call: Call) => T | PromiseLike<T>;
  readonly resolve: (value: T) => void;
  readonly reject: (error: unknown) => void;
  /** Asks for the call again; undefined for one that is made once. */
  readonly again: ((call: Running<T>) => void) | undefined;

  constructor(
    resource: Resource,
    fn: (call: Call) => T | PromiseLike<T>,
    { signal, classify, callTimeoutMs }: HowToCall<T>,
    resolve: (value: T) => void,
    reject: (error: unknown) => void,
    again?: (call: Running<T>) => void,
  ) {
    super(resource, signal, classify, callTimeoutMs);
    this.fn = fn;
    this.resolve = resolve;
    this.reject = reject;
    this.again = again;
    this.isRepeated = again !== undefined;
  }

  granted(): void {
    this.begin();
    const { fn } = this;
    const failed = (error: unknown): void => this.#tell({ error }, this.failed(error, UNEXPECTED));
    try {
      Promise.resolve(fn(this)).then((value) => {
        if (maySayMore(value) && this.notes?.observed !== value) return this.#broughtRefusal(value);
        this.#tell({ value }, this.succeeded(value));
        return undefined;
      }, failed);
    } catch (error) {
      failed(error);
    }
  }

  async #broughtRefusal(value: T & Response): Promise<void> {
    try {
      await this.observeBody(value);
    } catch {
      // Its head cannot be read: so it counts as unexpected.
    }
    this.#tell({ value }, this.succeeded(value));
  }

  refused(error: unknown): void {
    const { kept } = this;
    if (kept === undefined || !failureStands(error)) this.reject(error);
    else this.#settle(kept);
  }

  #tell(result: CallResult<T>, after: AfterCall): void {
    if (this.isNobodys(after)) return this.reject(new DeniedError(this.resource.name, "unavailable", undefined));
    if (after !== AGAIN || this.again === undefined) return this.#settle(result);
    this.kept = result;
    if ("value" in result && isResponse(result.value)) void letGo(result.value);
    this.again(this);
  }

  #settle(result: CallResult<T>): void {
    if ("value" in result) this.resolve(result.value);
    else this.reject(result.error);
  }
}

/** @internal Whether a call that was to be made again is not: its failure was its own. */
export function failureStands(error: unknown): boolean {
  return error instanceof DeniedError && error.reason === "failure_stands";
}

/** @internal A fetch that goes on once its call has a permit. */
export class Fetching extends CallUnderWay<Response> {
  readonly resolve: (call: Fetching) => void;
  readonly refused: (error: unknown) => void;

  constructor(
    resource: Resource,
    { signal, classify, callTimeoutMs }: HowToCall<Response>,
    resolve: (call: Fetching) => void,
    reject: (error: unknown) => void,
  ) {
    super(resource, signal, classify, callTimeoutMs);
    this.resolve = resolve;
    this.refused = reject;
  }

  granted(): void {
    this.begin();
    this.resolve(this);
  }
}
