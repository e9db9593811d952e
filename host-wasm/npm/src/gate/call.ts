/** One call under a permit, from its beginning to its end. */

import { DeniedError, shown, spanMs, whole } from "../errors.js";
import { offAbort, onAbort } from "./aborts.js";
import { holdBody } from "./body.js";
import type { Resource } from "./keys.js";
import { answerOfThrown } from "./thrown.js";
import { AGAIN, type AfterCall, FINAL, type GateModule, NONE, UNAVAILABLE, Waiter } from "./tickets.js";
import {
  type Completion,
  type End,
  CONNECTION_FAILED,
  LOCAL_CANCELLED,
  type Outcome,
  outcomeOfConnection,
  outcomeOfError,
  PROVIDER_FAILURE,
  PROVIDER_TIMEOUT,
  RATE_LIMITED,
  readEnd,
  readUsage,
  SUCCESS,
  UNEXPECTED,
  type Usage,
} from "../outcome.js";
import { type AnswerHead, errorText, headNumbers, isResponse, letGo, maySayMore, notesOf, type Sending, wholeOf } from "../response.js";
import type { Signal } from "../platform.js";

/** How the function of a call ended: with a value, or with what it threw. */
export type CallResult<T> = { readonly value: T } | { readonly error: unknown };

/**
 * Says how a call ended. Undefined leaves it to the gate.
 *
 * A fetch `Response` is read by its head; so is an error that has `status` and `headers`, or a `response` that has them, as those of
 * API clients do. Of the other errors, one whose `name` is `AbortError` is `local_cancelled`, one that is called `TimeoutError` is
 * `local_timeout`, a client's own timeout is `provider_timeout`, a connection that failed or broke is `connection_failed` or
 * `provider_failure`, and any other is `unexpected`. Any other value is a `success`. Once the call's signal is aborted, an error of whatever name is `provider_timeout` if `callTimeoutMs` is
 * over, `local_timeout` if the signal's reason is a `TimeoutError`, and `local_cancelled` otherwise.
 */
export type Classify<T> = (result: CallResult<T>) => Outcome | Completion | undefined;

/** What the function of a call is given. */
export interface Call {
  /** What is called. */
  readonly resource: Resource;
  /** Aborted when the caller's signal is, and when `callTimeoutMs` is over. Hand it to whatever makes the call. */
  readonly signal: Signal;
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
  readonly retries?: number | undefined;
}

/** @internal */
export interface HowToFetch extends HowToCall<Response> {
  readonly hold?: "body" | "head" | undefined;
  readonly bodyIdleMs?: number | undefined;
}

/** How long a body holds its slot that waits for its reader, where nobody says. */
const BODY_IDLE_MS = 2_000;

/** @internal How a call ended, in numbers: its outcome, and the wait that the provider asked for, or NaN. */
export interface Ending {
  readonly outcome: number;
  readonly retryAfterMs: number;
}

/** @internal How a try of a call that may be made again ended, and what it brought. */
export interface Ended<T> {
  readonly result: CallResult<T>;
  readonly ending: Ending;
}

/** @internal In whose name a pipeline's task asks. */
export interface Behalf {
  /** Called right before the wasm module is asked: it lends the gate the task's tie. */
  readonly lend: () => void;
  /** Hears how a call ended, with what it threw, if it did: how a task's calls are made that are made again after an outage. */
  readonly ended?: ((ending: Ending, error: unknown) => void) | undefined;
}

/** @internal How long a call may take. */
interface Limit {
  /** Whether the time is over. */
  isOver: boolean;
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
  /** Whether a task hears how it ended. */
  readonly isOfTask: boolean;
  /** Whether it is made again after an outage, as the core decides. */
  readonly isRepeated: boolean;
  /** How the latest try ended. */
  ending: Ending = UNENDED;
  #retries: Retries | undefined;

  constructor(
    resource: Resource,
    outer: AbortSignal | null | undefined,
    classify: Classify<T> | undefined,
    timeoutMs: number | undefined,
    isOfTask: boolean,
    isRepeated: boolean,
    retries: Retries | undefined,
  ) {
    super(resource, outer);
    this.#retries = retries;
    this.classify = classify;
    this.timeoutMs = timeoutMs === undefined ? undefined : spanMs("callTimeoutMs", timeoutMs);
    this.isOfTask = isOfTask;
    this.isRepeated = isRepeated;
  }

  /** In how many milliseconds the call is made again that has ended, as the core decides; NaN if it is over. */
  retryInMs(after: AfterCall): number {
    return after === FINAL && this.#retries !== undefined ? this.#retries.after(this.ending) : NaN;
  }

  get signal(): AbortSignal {
    return this.notes?.limit?.controller.signal ?? this.outer ?? (this.noted.signal ??= new AbortController().signal);
  }

  get noted(): Notes {
    return (this.notes ??= { limit: undefined, signal: undefined, said: undefined, observed: undefined, usage: undefined });
  }

  observe(answer: AnswerHead): void {
    this.#hear(answer, headNumbers(answer));
  }

  #hear(answer: AnswerHead, numbers: Float64Array): void {
    const { noted } = this;
    noted.said = numbers;
    noted.observed = answer;
    const notes = notesOf(numbers);
    if (notes !== undefined && this.ticket !== NONE) this.resource.book.hear(this.ticket, notes);
  }

  /** Reads the answer that an error of an API client is about, unless the call has read one itself. */
  #observeThrown(error: unknown): void {
    if (this.notes?.observed !== undefined) return;
    const answer = answerOfThrown(error);
    if (answer !== undefined) this.#hear(answer, headNumbers(answer, answer.body));
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

  /** The call ended in `error`, which means `otherwise` unless it says more itself. `isOwed`: it was the provider who had to do something. */
  failed(error: unknown, otherwise: number, isOwed = true): AfterCall {
    const own = this.classify && ask<T>(this.classify, { error });
    if (own !== undefined) return this.#end(own.outcome, own.retryAfterMs, own);
    this.#observeThrown(error);
    const [outcome = SUCCESS, retryAfterMs = NaN] = this.notes?.said ?? [];
    return this.#end(outcome === SUCCESS ? this.#meaningOf(error, otherwise, isOwed) : outcome, retryAfterMs);
  }

  /** What an error means where no head says it. Whoever aborts a call may do it with a reason of any name. */
  #meaningOf(error: unknown, otherwise: number, isOwed: boolean): number {
    const limit = this.notes?.limit;
    if (limit?.isOver && isOwed) return PROVIDER_TIMEOUT;
    const signal = limit?.controller.signal ?? this.outer;
    return signal?.aborted ? outcomeOfError(signal.reason, LOCAL_CANCELLED) : outcomeOfError(error, otherwise);
  }

  /** What a failed try comes to that the core lets stand for now, or keeps for later. */
  isNobodys(after: AfterCall): boolean {
    const { outcome } = this.ending;
    const saysNothing = outcome === PROVIDER_FAILURE || outcome === PROVIDER_TIMEOUT || outcome === CONNECTION_FAILED;
    return after === UNAVAILABLE && saysNothing;
  }

  #end(outcome: number, retryAfterMs: number, own?: End): AfterCall {
    const { notes, ticket } = this;
    if (ticket === NONE) return FINAL;
    this.ticket = NONE;
    if (this.isOfTask || this.isRepeated) this.ending = { outcome, retryAfterMs };
    if (this.isRepeated) {
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

/** @internal The backoff of a call with this setting; undefined for one that is made once. */
export function retriesOf(resource: Resource, retries: number | undefined): Retries | undefined {
  const number = whole("retries", retries ?? 0);
  return number === 0 ? undefined : new Retries(resource, number);
}

const UNKNOWN = [-1, 0] as const;
const UNENDED: Ending = { outcome: SUCCESS, retryAfterMs: NaN };

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
  const limit: Limit = { isOver: false, controller, onAbort: () => controller.abort(outer?.reason), timer: undefined };
  if (outer !== undefined) onAbort(outer, limit.onAbort);
  const until = performance.now() + timeoutMs;
  const arm = (): void => {
    const left = Math.ceil(until - performance.now());
    if (left > 0) {
      limit.timer = setTimeout(arm, Math.min(left, LONGEST_DELAY_MS));
      return;
    }
    limit.isOver = !controller.signal.aborted;
    controller.abort(new DOMException(`the call took longer than its ${timeoutMs} ms`, "TimeoutError"));
  };
  arm();
  return limit;
}

function lift({ timer, onAbort: listener }: Limit, outer: AbortSignal | undefined): void {
  if (timer !== undefined) clearTimeout(timer);
  if (outer !== undefined) offAbort(outer, listener);
}

/** @internal Whether a call that was to be made again is not: its failure was its own. */
function failureStands(error: unknown): boolean {
  return error instanceof DeniedError && error.reason === "request_at_fault";
}

/** Lets go of an answer that nobody will see. */
function abandon({ result }: Ended<unknown>): void {
  if ("value" in result && isResponse(result.value)) void letGo(result.value);
}

/** @internal Asks for a permit for a call that was made before; `isAfterOutage` says that the core has kept it. */
export type AskAgain = (call: Waiter, how: object, isAfterOutage: boolean) => void;

/** @internal A function that is called once its call has a permit. */
export class Running<T> extends CallUnderWay<T> {
  readonly fn: (call: Call) => T | PromiseLike<T>;
  readonly resolve: (value: T) => void;
  readonly reject: (error: unknown) => void;
  readonly behalf: Behalf | undefined;
  readonly how: HowToCall<T>;
  /** Asks for the call again: one function for all calls of a gate. */
  readonly again: AskAgain;
  /** How it failed, while it is to be made again. */
  #kept: Ended<T> | undefined = undefined;

  constructor(
    resource: Resource,
    fn: (call: Call) => T | PromiseLike<T>,
    how: HowToCall<T>,
    resolve: (value: T) => void,
    reject: (error: unknown) => void,
    behalf: Behalf | undefined,
    again: AskAgain,
  ) {
    const { signal, classify, callTimeoutMs, retries } = how;
    const isOfTask = behalf?.ended !== undefined;
    const backoff = retriesOf(resource, retries);
    super(resource, signal, classify, callTimeoutMs, isOfTask, isOfTask || backoff !== undefined, backoff);
    this.how = how;
    this.fn = fn;
    this.resolve = resolve;
    this.reject = reject;
    this.behalf = behalf;
    this.again = again;
  }

  granted(): void {
    if (this.#kept !== undefined) abandon(this.#kept);
    this.#kept = undefined;
    this.begin();
    const { fn } = this;
    const failed = (error: unknown): void => this.#threw(error);
    try {
      Promise.resolve(fn(this)).then((value) => {
        if (maySayMore(value) && this.notes?.observed !== value) {
          return this.#observeFor(value, () => this.#tell({ value }, this.succeeded(value)));
        }
        const after = this.succeeded(value);
        // Most calls are made once, and no task hears of them.
        if (this.isRepeated) this.#tell({ value }, after);
        else this.resolve(value);
        return undefined;
      }, failed);
    } catch (error) {
      failed(error);
    }
  }

  #threw(error: unknown): void {
    const over = (): void => this.#tell({ error }, this.failed(error, outcomeOfConnection(error) ?? UNEXPECTED));
    const response = this.notes?.observed === undefined ? answerOfThrown(error)?.response : undefined;
    if (maySayMore(response)) void this.#observeFor(response, over);
    else over();
  }

  /** Reads a refusal with its body, and then goes on. */
  async #observeFor(answer: Response, goOn: () => void): Promise<void> {
    try {
      await this.observeBody(answer);
    } catch {
      // Its head cannot be read: so it counts as unexpected.
    }
    goOn();
  }

  refused(error: unknown): void {
    const kept = this.#kept;
    if (kept !== undefined && failureStands(error)) return this.#settle(kept);
    if (kept !== undefined) abandon(kept);
    this.reject(error);
  }

  #tell(result: CallResult<T>, after: AfterCall): void {
    const ended = { result, ending: this.ending };
    if (this.isNobodys(after)) {
      abandon(ended);
      this.reject(new DeniedError(this.resource.name, "unavailable", undefined));
    } else if (after === AGAIN) {
      this.#kept = ended;
      this.again(this, this.how, true);
    } else {
      const retryInMs = this.retryInMs(after);
      if (Number.isNaN(retryInMs)) return this.#settle(ended);
      abandon(ended);
      this.resource.book.pauses.begin(this.resource, retryInMs, this.outer, () => this.again(this, this.how, false), this.reject);
    }
  }

  #settle({ result, ending }: Ended<T>): void {
    this.behalf?.ended?.(ending, "error" in result ? result.error : undefined);
    if ("value" in result) this.resolve(result.value);
    else this.reject(result.error);
  }
}

/** @internal A fetch that goes on once its call has a permit. */
class Fetching extends CallUnderWay<Response> {
  readonly resolve: (call: Fetching) => void;
  readonly refused: (error: unknown) => void;

  constructor(
    resource: Resource,
    { signal, classify, callTimeoutMs }: HowToCall<Response>,
    resolve: (call: Fetching) => void,
    reject: (error: unknown) => void,
    isOfTask: boolean,
    isRepeated: boolean,
    retries: Retries | undefined,
  ) {
    super(resource, signal, classify, callTimeoutMs, isOfTask, isRepeated, retries);
    this.resolve = resolve;
    this.refused = reject;
  }

  granted(): void {
    this.begin();
    this.resolve(this);
  }

  /** What an error means that says nothing itself. */
  #otherwise = UNEXPECTED;

  /**
   * Sends the request, and reads what the head of its answer says, and the body of a refusal. The body of a task's answer is read to its
   * end, so that a call is made again whose answer breaks off.
   */
  async send(request: Sending): Promise<CallResult<Response>> {
    this.#otherwise = request.isSound() ? CONNECTION_FAILED : UNEXPECTED;
    try {
      const value = await request.send(this.signal, this.isRepeated);
      this.#otherwise = PROVIDER_FAILURE;
      if (maySayMore(value)) await this.observeBody(value);
      else this.observe(value);
      return { value: this.isOfTask && value.status < 400 ? await wholeOf(value) : value };
    } catch (error) {
      return { error };
    }
  }

  /** The call is over with what {@link send} brought. */
  over(result: CallResult<Response>): AfterCall {
    return "value" in result ? this.succeeded(result.value) : this.failed(result.error, this.#otherwise);
  }
}

/** @internal Asks for a permit for this call; the second time for the one that has just failed. */
export type Ask = (call: Waiter, isAgain: boolean) => void;

/** @internal Fetches under a permit that `ask` asks for, which is held until the body of the answer has ended. */
export async function fetchUnder(
  resource: Resource,
  request: Sending,
  how: HowToFetch,
  behalf: Behalf | undefined,
  ask: Ask,
): Promise<Response> {
  const { hold = "body", bodyIdleMs: idle } = how;
  if (hold !== "body" && hold !== "head") throw new TypeError(`hold is ${shown(hold)}; expected "body" or "head"`);
  const holdsBody = hold === "body";
  const bodyIdleMs = idle === undefined ? BODY_IDLE_MS : spanMs("bodyIdleMs", idle);
  const ended = behalf?.ended;
  const isOfTask = ended !== undefined;
  const retries = request.isRepeatable ? retriesOf(resource, how.retries) : undefined;
  const isRepeated = (isOfTask || retries !== undefined) && request.isRepeatable;
  // A refusal is over with its head, and so is a failure that may be made good.
  const isOver = (call: Fetching, { status }: Response): boolean =>
    isOfTask || call.isRefused || (status >= 400 && (status < 500 || retries !== undefined));
  let kept: Ended<Response> | undefined;
  for (;;) {
    let call: Fetching;
    try {
      call = await new Promise<Fetching>((resolve, reject) => {
        ask(new Fetching(resource, how, resolve, reject, isOfTask, isRepeated, retries), kept !== undefined);
      });
    } catch (error) {
      if (kept !== undefined && failureStands(error)) return settle(kept, ended);
      if (kept !== undefined) abandon(kept);
      throw error;
    }
    if (kept !== undefined) abandon(kept);
    const result = await call.send(request);
    if ("value" in result && holdsBody && !isOver(call, result.value)) return held(call, result.value, bodyIdleMs);
    const after = call.over(result);
    const end = { result, ending: call.ending };
    if (call.isNobodys(after)) {
      abandon(end);
      throw new DeniedError(resource.name, "unavailable", undefined);
    }
    if (after === AGAIN) {
      kept = end;
      continue;
    }
    kept = undefined;
    const retryInMs = call.retryInMs(after);
    if (Number.isNaN(retryInMs)) return settle(end, ended);
    abandon(end);
    await new Promise<void>((resolve, reject) => resource.book.pauses.begin(resource, retryInMs, call.outer, resolve, reject));
  }
}

function settle({ result, ending }: Ended<Response>, ended: Behalf["ended"]): Response {
  ended?.(ending, "error" in result ? result.error : undefined);
  if ("error" in result) throw result.error;
  return result.value;
}

/** The answer, which ends its call when its body has ended. */
function held(call: Fetching, answer: Response, idleMs: number): Response {
  const { resource } = call;
  try {
    return holdBody(answer, idleMs, {
      waits: (isWaiting) => void (resource.unread += isWaiting ? 1 : -1),
      ended: (how, error, isOwed) => {
        const given = how === "given up" ? new DOMException("the body was given up", "AbortError") : error;
        if (how === "whole" || how === "unread") call.succeeded(answer);
        else call.failed(given, PROVIDER_FAILURE, isOwed);
        if (how === "unread") resource.book.leftUnread(resource, idleMs);
      },
    });
  } catch (error) {
    call.failed(error, PROVIDER_FAILURE);
    throw error;
  }
}
