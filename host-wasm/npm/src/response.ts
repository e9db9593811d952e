/** What an HTTP answer tells the gate. */

import { known } from "./errors.js";
import { type BudgetDimension, DIMENSIONS } from "./gate-limits.js";
import { type Completion, OUTCOMES } from "./outcome.js";
import { headNames, readHead as readNumbers } from "./wasm/tidegate_live.js";

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
}

/** What the head of an answer says. */
export interface HeadReading extends Completion {
  /** What the `x-ratelimit-*` headers say, for each rate that they name. */
  readonly rateLimits: readonly RateLimitNote[];
}

/** @internal The same in numbers, as the wasm module answers them. */
export function headNumbers(answer: AnswerHead): Float64Array {
  names ??= headNames().split("\n");
  let lines = "";
  let untilMs = NaN;
  for (const name of names) {
    const value = answer.headers.get(name);
    if (value === null || value === undefined) continue;
    lines += `${name}:${value}\n`;
    if (name === "retry-after") untilMs = untilDate(value);
  }
  return readNumbers(answer.status, lines, untilMs);
}

/** What the wasm module looks up. */
let names: string[] | undefined;

/** How many numbers there are for each rate, behind the outcome and the wait. */
const NOTE = 4;
const FIRST_NOTE = 2;

/** @internal Calls `tell` for each rate that is spoken of: dimension, limit, remaining, milliseconds until it is whole. */
export function eachNote(numbers: Float64Array, tell: (note: Float64Array) => void): void {
  for (let at = FIRST_NOTE; at < numbers.length; at += NOTE) tell(numbers.subarray(at, at + NOTE));
}

/** Three letters of a day, of a month, and a time: all HTTP dates have them, and little else that `Date.parse` takes. */
const DATE = /^[A-Z][a-z]{2}[a-z]*,? .*[A-Z][a-z]{2}.* ?\d\d:\d\d:\d\d/;

/** Milliseconds until an HTTP date, 0 for one that is past; NaN for what is no date. */
function untilDate(value: string): number {
  const date = value.trim();
  if (!DATE.test(date)) return NaN;
  // The oldest form does not say that it is GMT.
  const at = Date.parse(date.endsWith("GMT") ? date : `${date} GMT`);
  return Number.isNaN(at) ? NaN : Math.max(0, at - Date.now());
}

/**
 * Reads what an answer says: how the call ended, when to come back, what is left of the rates. For clients that do not hand out
 * fetch responses; {@link RequestGate.run} and {@link RequestGate.fetch} do it by themselves.
 *
 * | answer | outcome |
 * | --- | --- |
 * | 429, 529, or 503 with Retry-After; gRPC `RESOURCE_EXHAUSTED` | `rate_limited` |
 * | 408, 504; gRPC `DEADLINE_EXCEEDED` | `provider_timeout` |
 * | other 4xx and 5xx | `provider_failure` |
 * | anything else | `success` |
 *
 * Retry-After is read as seconds, as a date, and as `retry-after-ms`. A refusal without one takes its wait from the
 * `x-ratelimit-reset-*` headers of what is used up. What cannot be read is as good as absent.
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
  eachNote(numbers, ([dimension = 0, limit, remaining, resetAfterMs]) => {
    rateLimits.push({
      dimension: DIMENSIONS[dimension] ?? "requests",
      limit: known(limit),
      remaining: known(remaining),
      resetAfterMs: known(resetAfterMs),
    });
  });
  const retryAfterMs = known(numbers[1]);
  const outcome = OUTCOMES[numbers[0] ?? 0] ?? "unexpected";
  return { outcome, ...(retryAfterMs === undefined ? {} : { retryAfterMs }), rateLimits };
}

/** @internal Whether a value is the answer of a fetch, of this realm or another. */
export function isResponse(value: unknown): value is Response {
  if (typeof Response !== "undefined" && value instanceof Response) return true;
  return Object.prototype.toString.call(value) === "[object Response]";
}

/** How a held body ended. */
export type BodyEnd = "whole" | "given up" | "broken";

/**
 * @internal The same answer, whose body says once how it ended: read to its end, cancelled or broken.
 *
 * The body is read as it is asked for, a piece at a time, so whoever reads slowly is served slowly.
 */
export function holdBody(answer: Response, ended: (how: BodyEnd, error?: unknown) => void): Response {
  const { body } = answer;
  if (body === null) {
    ended("whole");
    return answer;
  }
  const reader = body.getReader();
  const held = new ReadableStream<Uint8Array<ArrayBuffer>>(
    {
      async pull(controller) {
        try {
          const { done, value } = await reader.read();
          if (!done) return controller.enqueue(value);
          ended("whole");
          controller.close();
        } catch (error) {
          ended("broken", error);
          controller.error(error);
        }
      },
      cancel(reason) {
        ended("given up");
        return reader.cancel(reason);
      },
    },
    // Nothing is read before it is asked for.
    { highWaterMark: 0 },
  );
  const { status, statusText, headers } = answer;
  const copy = new Response(held, { status, statusText, headers });
  // What a constructor cannot be told.
  for (const name of ["url", "redirected", "type"] as const) {
    Object.defineProperty(copy, name, { value: answer[name], configurable: true });
  }
  return copy;
}
