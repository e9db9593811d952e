/** What an HTTP answer tells the gate. */

import { currentModule } from "./core.js";
import { known } from "./errors.js";
import { type BudgetDimension, DIMENSIONS } from "./gate/limits.js";
import { type Completion, OUTCOMES } from "./outcome.js";

/** The head of an HTTP answer, such as a fetch `Response`. */
export interface AnswerHead {
  /** The HTTP status. */
  readonly status: number;
  /** The headers; names are looked up in lower case. */
  readonly headers: { get(name: string): string | null | undefined };
}

/** What a provider said about one of its rates. */
export interface RateLimitNote {
  /** What it counts: `requests` or `total_tokens`. */
  readonly dimension: BudgetDimension;
  /** How much is allowed in a window. */
  readonly limit: number | undefined;
  /** How much of it is left. */
  readonly remaining: number | undefined;
  /** How long until all of it is back, in milliseconds. */
  readonly resetAfterMs: number | undefined;
  /** The window that the name of the header tells, or the policy beside it, in milliseconds. */
  readonly windowMs: number | undefined;
}

/** What the head of an answer says. */
export interface HeadReading extends Completion {
  /** What the `x-ratelimit-*` headers say, for each rate that they name. */
  readonly rateLimits: readonly RateLimitNote[];
}

/** @internal The same in numbers, as the wasm module answers them; `body` is the text of an error. */
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

/** What the wasm module looks up. */
let names: string[] | undefined;

/** How many numbers there are for each rate, behind the outcome and the wait. */
const NOTE = 5;
const FIRST_NOTE = 2;

/** @internal What the wasm module is told of the rates; nothing, if no header speaks of one. */
export function notesOf(numbers: Float64Array): Float64Array | undefined {
  return numbers.length > FIRST_NOTE ? numbers.subarray(FIRST_NOTE) : undefined;
}

/**
 * Calls `tell` for each rate that is spoken of: dimension, limit, remaining, milliseconds until it is whole,
 * window.
 */
function eachNote(numbers: Float64Array, tell: (note: Float64Array) => void): void {
  for (let at = FIRST_NOTE; at < numbers.length; at += NOTE) tell(numbers.subarray(at, at + NOTE));
}

/**
 * Reads what an answer says: how the call ended, when to come back, what is left of the rates. For clients
 * that do not hand out fetch responses; {@link RequestGate.run} and {@link RequestGate.fetch} do it by
 * themselves.
 *
 * | answer | outcome |
 * | --- | --- |
 * | 429, 529, or 503 with Retry-After; gRPC `RESOURCE_EXHAUSTED` | `rate_limited` |
 * | 408, 504; gRPC `DEADLINE_EXCEEDED` | `provider_timeout` |
 * | other 5xx | `provider_failure` |
 * | 401; gRPC `UNAUTHENTICATED` | `key_rejected` |
 * | 402 | `quota_exhausted` |
 * | other 4xx | `request_rejected` |
 * | anything else | `success` |
 *
 * Retry-After is read as seconds, as a date, and as `retry-after-ms`. A refusal without one takes its wait
 * from the `x-ratelimit-reset-*` headers of what is used up. Moments count from the `Date` of the answer,
 * where the page may see it, or else from this machine's clock. What cannot be read is as good as absent.
 *
 * ```ts
 * import { readHead } from "tidegate";
 *
 * const said = readHead({ status: 429, headers: new Headers({ "retry-after": "1.5" }) });
 * console.log(said.outcome, said.retryAfterMs); // rate_limited 1500
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

/**
 * The most characters of the body of a refusal that are read, and how long that may take, in milliseconds.
 */
export const LONGEST_ERROR = 65_536;
const ERROR_PATIENCE_MS = 250;

/**
 * @internal Whether an answer is a refusal whose body may say more: that the account is empty, the key
 * refused, the model unknown.
 */
export function isReadableRefusal(answer: unknown): answer is Response {
  try {
    return isResponse(answer) && answer.status >= 400 && answer.status < 500 && !answer.bodyUsed && answer.body?.locked === false;
  } catch {
    // It does not even say what it is.
    return false;
  }
}

/**
 * @internal The body of a refusal, which its caller can still read; undefined if it does not come soon, or is
 * too long.
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
    // It broke off: its head counts.
  } finally {
    clearTimeout(timer);
    void reader.cancel().catch(() => {});
  }
  return undefined;
}

/** @internal Whether a value is the answer of a fetch, of this realm or another. */
export function isResponse(value: unknown): value is Response {
  return typeof value === "object" && value !== null && Object.prototype.toString.call(value) === "[object Response]";
}

/** @internal The signal that a fetch of these is given; `null` says that there is none. */
export function signalOf(input: unknown, init: RequestInit): AbortSignal | null | undefined {
  const own = isRequest(input) ? input.signal : undefined;
  return init.signal === undefined ? own : init.signal;
}

/** @internal What a fetch is asked to send, perhaps several times. */
export class OutgoingRequest {
  readonly #input: RequestInfo | URL;
  readonly #init: RequestInit;
  readonly #isSpent: boolean;

  constructor(input: RequestInfo | URL, init: RequestInit) {
    this.#input = input;
    this.#init = init;
    this.#isSpent = isRequest(input) && input.bodyUsed && init.body === undefined;
  }

  /** Whether it can be sent a second time: not if its body is a stream. */
  get isRepeatable(): boolean {
    return typeof ReadableStream === "undefined" || !(this.#init.body instanceof ReadableStream);
  }

  /** Sends it. The body of a `Request` is kept for the next time. */
  send(signal: AbortSignal, isRepeated: boolean): Promise<Response> {
    const input = this.#input;
    const isCopied = isRepeated && isRequest(input) && input.body !== null && !this.#isSpent;
    return fetch(isCopied ? input.clone() : input, { ...this.#init, signal });
  }

  /**
   * Whether there is such a request, so that a failure was the connection's: an address that is none never
   * reaches anybody.
   */
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

/** @internal Lets go of the body of an answer that nobody will read. */
export async function cancelBody(answer: Response): Promise<void> {
  try {
    await answer.body?.cancel();
  } catch {
    // Somebody reads it, or it is broken.
  }
}

/** @internal The same answer, once its body has come. Throws if it breaks off. */
export async function readWhole(answer: Response): Promise<Response> {
  return answer.body === null ? answer : withHeadOf(copyOf(answer, await answer.arrayBuffer()), answer);
}

/** @internal */
export function copyOf({ status, statusText, headers }: Response, body: ReadableStream | ArrayBuffer): Response {
  try {
    return new Response(body, { status, statusText, headers });
  } catch {
    // Servers say more than the constructor takes: a status from 600 up, a reason in UTF-8.
    return new Response(body, { headers });
  }
}

const HEAD = ["status", "statusText", "ok", "url", "redirected", "type"] as const;

/** @internal Gives a copy what the constructor cannot be told, also for copies of it. */
export function withHeadOf(copy: Response, answer: Response): Response {
  for (const name of HEAD) Object.defineProperty(copy, name, { value: answer[name], configurable: true });
  const clone = (): Response => withHeadOf(Response.prototype.clone.call(copy), answer);
  Object.defineProperty(copy, "clone", { value: clone, configurable: true });
  return copy;
}
