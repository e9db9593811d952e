/** Reads HTTP responses: outcome, Retry-After, rate limits. */

import { currentModule } from "./core.js";
import { known } from "./errors.js";
import type { BudgetDimension } from "./gate/limits.js";
import type { Completion } from "./outcome.js";
import { DIMENSIONS, OUTCOMES } from "./wasm/tidegate_names.js";

/** The head of an HTTP response, such as a fetch `Response`. */
export interface AnswerHead {
  /** The HTTP status. */
  readonly status: number;
  /** The headers; names are looked up in lower case. */
  readonly headers: { get(name: string): string | null | undefined };
}

/** One of the rates that a provider states in its headers. */
export interface RateLimitNote {
  /** The unit: `requests` or `total_tokens`. */
  readonly dimension: BudgetDimension;
  /** The amount allowed in a window. */
  readonly limit: number | undefined;
  /** The remaining amount. */
  readonly remaining: number | undefined;
  /** The milliseconds until the full amount is available again. */
  readonly resetAfterMs: number | undefined;
  /** The window in milliseconds, from the header's name or the policy beside it. */
  readonly windowMs: number | undefined;
}

/** The contents of the head of a response. */
export interface HeadReading extends Completion {
  /** The rates in the `x-ratelimit-*` headers. */
  readonly rateLimits: readonly RateLimitNote[];
}

/** @internal Reads a head as numbers. `body` is the body of an error response. */
export function headNumbers(answer: AnswerHead, body?: string): Float64Array {
  const { module } = currentModule();
  names ??= module.headNames().split("\n");
  let lines = "";
  for (const name of names) {
    const value = answer.headers.get(name);
    if (value === null || value === undefined) continue;
    lines += `${name}:${value}\n`;
  }
  return body === undefined ? module.readHead(answer.status, lines) : module.readRefusal(answer.status, lines, body);
}

/** The header names that the core reads. */
let names: string[] | undefined;

/** The numbers of each rate, after the outcome and the Retry-After. */
const NOTE = 5;
const FIRST_NOTE = 2;

/** @internal Returns the numbers of the rates; undefined if no header states one. */
export function notesOf(numbers: Float64Array): Float64Array | undefined {
  return numbers.length > FIRST_NOTE ? numbers.subarray(FIRST_NOTE) : undefined;
}

/** Calls `visit` for each rate: dimension, limit, remaining, milliseconds until reset, window. */
function eachNote(numbers: Float64Array, visit: (note: Float64Array) => void): void {
  for (let at = FIRST_NOTE; at < numbers.length; at += NOTE) visit(numbers.subarray(at, at + NOTE));
}

/**
 * Reads the head of a response: outcome, Retry-After and rate limits. For clients that do not return fetch
 * responses; {@link RequestGate.run} and {@link RequestGate.fetch} read heads themselves.
 *
 * | response | outcome |
 * | --- | --- |
 * | 429, 529, or 503 with Retry-After; gRPC `RESOURCE_EXHAUSTED` | `rate_limited` |
 * | 408, 504; gRPC `DEADLINE_EXCEEDED` | `provider_timeout` |
 * | other 5xx | `provider_failure` |
 * | 401; gRPC `UNAUTHENTICATED` | `key_rejected` |
 * | 402 | `quota_exhausted` |
 * | other 4xx | `request_rejected` |
 * | anything else | `success` |
 *
 * Retry-After is read as seconds, as a date, and as `retry-after-ms`. Without it, a rate limit takes its wait
 * from the `x-ratelimit-reset-*` headers of exhausted rates. Dates are relative to the `Date` of the response
 * if the page may read it, else to this machine's clock. Malformed headers are ignored.
 *
 * ```ts
 * import { readHead } from "tidegate";
 *
 * const head = readHead({ status: 429, headers: new Headers({ "retry-after": "1.5" }) });
 * console.log(head.outcome, head.retryAfterMs); // rate_limited 1500
 * ```
 */
export function readHead(answer: AnswerHead): HeadReading {
  const numbers = headNumbers(answer);
  const rateLimits: RateLimitNote[] = [];
  eachNote(numbers, ([dimension = 0, limit, remaining, resetAfterMs, windowMs]) => {
    rateLimits.push({
      dimension: DIMENSIONS[dimension] ?? "requests",
      limit: known(limit),
      remaining: known(remaining),
      resetAfterMs: known(resetAfterMs),
      windowMs: known(windowMs),
    });
  });
  const retryAfterMs = known(numbers[1]);
  const outcome = OUTCOMES[numbers[0] ?? 0] ?? "unexpected";
  return { outcome, ...(retryAfterMs === undefined ? {} : { retryAfterMs }), rateLimits };
}

/** The most characters of an error body that are read, and the longest time for that, in milliseconds. */
export const LONGEST_ERROR = 65_536;
const ERROR_PATIENCE_MS = 250;

/**
 * @internal Whether a value is an error response whose body may state a more specific cause: an exhausted
 * account, a rejected key, an unknown model.
 */
export function isReadableRefusal(answer: unknown): answer is Response {
  try {
    return isResponse(answer) && answer.status >= 400 && answer.status < 500 && !answer.bodyUsed && answer.body?.locked === false;
  } catch {
    // A value whose properties throw is not a response.
    return false;
  }
}

/**
 * @internal Returns the body of an error response, which the caller can still read; undefined if it is too
 * late or too long.
 */
export async function errorText(answer: Response): Promise<string | undefined> {
  const reader = answer.clone().body?.getReader();
  if (reader === undefined) return undefined;
  const decoder = new TextDecoder();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<"late">((resolve) => void (timer = setTimeout(() => resolve("late"), ERROR_PATIENCE_MS)));
  try {
    for (let text = ""; text.length <= LONGEST_ERROR; ) {
      const piece = await Promise.race([reader.read(), late]);
      if (piece === "late") return undefined;
      if (piece.done) return text + decoder.decode();
      text += decoder.decode(piece.value, { stream: true });
    }
  } catch {
    // The body broke off: only the head counts.
  } finally {
    clearTimeout(timer);
    void reader.cancel().catch(() => {});
  }
  return undefined;
}

/** @internal Whether a value is a fetch `Response`, of this realm or another. */
export function isResponse(value: unknown): value is Response {
  return typeof value === "object" && value !== null && Object.prototype.toString.call(value) === "[object Response]";
}

/** @internal Returns the signal of a fetch with these arguments. `null` states that there is none. */
export function signalOf(input: unknown, init: RequestInit): AbortSignal | null | undefined {
  const own = isRequest(input) ? input.signal : undefined;
  return init.signal === undefined ? own : init.signal;
}

/** @internal A request that may be sent several times. */
export class OutgoingRequest {
  readonly #input: RequestInfo | URL;
  readonly #init: RequestInit;
  readonly #isSpent: boolean;

  constructor(input: RequestInfo | URL, init: RequestInit) {
    this.#input = input;
    this.#init = init;
    this.#isSpent = isRequest(input) && input.bodyUsed && init.body === undefined;
  }

  /** Whether it can be sent again: not if its body is a stream. */
  get isRepeatable(): boolean {
    const body: unknown = this.#init.body;
    const isWebStream = typeof ReadableStream !== "undefined" && body instanceof ReadableStream;
    // A `Readable` of Node is one as well.
    const isIterated = typeof body === "object" && body !== null && Symbol.asyncIterator in body;
    return !isWebStream && !isIterated;
  }

  /** Sends the request. If `isRepeated`, the body of a `Request` is kept for the next time. */
  send(signal: AbortSignal, isRepeated: boolean): Promise<Response> {
    const input = this.#input;
    const isCopied = isRepeated && isRequest(input) && input.body !== null && !this.#isSpent;
    return fetch(isCopied ? input.clone() : input, { ...this.#init, signal });
  }

  /** Whether the request is valid. The failure of an invalid request is not a connection failure. */
  isValid(): boolean {
    const input = this.#input;
    if (typeof Request === "undefined" || isRequest(input) || !this.isRepeatable) return !this.#isSpent;
    try {
      return isRequest(new Request(input, { ...this.#init, signal: null }));
    } catch {
      return false;
    }
  }
}

function isRequest(input: unknown): input is Request {
  return typeof Request !== "undefined" && input instanceof Request;
}

/** @internal Cancels the body of a response that is not returned. */
export async function cancelBody(answer: Response): Promise<void> {
  try {
    await answer.body?.cancel();
  } catch {
    // The body is locked by a reader, or broken.
  }
}

/** @internal Returns the same response after its whole body has arrived. Throws if the body breaks off. */
export async function readWhole(answer: Response): Promise<Response> {
  return answer.body === null ? answer : withHeadOf(copyOf(answer, await answer.arrayBuffer()), answer);
}

/** @internal */
export function copyOf({ status, statusText, headers }: Response, body: ReadableStream | ArrayBuffer): Response {
  try {
    return new Response(body, { status, statusText, headers });
  } catch {
    // Servers send values that the constructor rejects: a status above 599, a reason in UTF-8.
    return new Response(body, { headers });
  }
}

const HEAD = ["status", "statusText", "ok", "url", "redirected", "type"] as const;

/**
 * @internal Gives a copy the properties that the constructor does not accept. Clones of the copy have them
 * too.
 */
export function withHeadOf(copy: Response, answer: Response): Response {
  for (const name of HEAD) Object.defineProperty(copy, name, { value: answer[name], configurable: true });
  const clone = (): Response => withHeadOf(Response.prototype.clone.call(copy), answer);
  Object.defineProperty(copy, "clone", { value: clone, configurable: true });
  return copy;
}
