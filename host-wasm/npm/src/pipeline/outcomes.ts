import { type HeadReading, isResponse, readHead } from "../response.js";
import { nameOf } from "../outcome.js";
import type { Task } from "./task.js";

/** A failure that may pass. */
export type RetryKind = "rate_limited" | "timeout" | "server_error" | "connection" | "admission_timeout" | "unreadable_answer";

/** A failure that the same work would meet again. */
export type FailureKind = "request" | "authentication" | "not_found" | "malformed_answer" | "template" | "other";

/** The kinds in the order of their numbers. */
export const RETRY_KINDS: readonly RetryKind[] = [
  "rate_limited",
  "timeout",
  "server_error",
  "connection",
  "admission_timeout",
  "unreadable_answer",
];
export const FAILURE_KINDS: readonly FailureKind[] = [
  "request",
  "authentication",
  "not_found",
  "malformed_answer",
  "template",
  "other",
];

/**
 * Throw it in a column's `fill`: the task may work later, and is tried again.
 *
 * ```ts
 * import { Pipeline, Retry } from "tidegate/pipeline";
 *
 * const report = await new Pipeline({ rows: 1 })
 *   .column("value", {
 *     fill: (_, task) => {
 *       if (task.attempt === 1) throw new Retry("server_error", { afterMs: 10 });
 *       return task.attempt;
 *     },
 *   })
 *   .run();
 * console.log(report.columns["value"]?.retryable, report.rowsOut); // 1 1
 * ```
 */
export class Retry extends Error {
  override readonly name = "Retry";
  /** What happened. `rate_limited` and `admission_timeout` are tried again as often as it takes; the others in the run's `retries`. */
  readonly kind: RetryKind;
  /** The pause that the provider asked for, in milliseconds. */
  readonly afterMs: number | undefined;

  constructor(kind: RetryKind, options: { readonly afterMs?: number | undefined; readonly message?: string; readonly cause?: unknown } = {}) {
    super(options.message ?? kind.replaceAll("_", " "), { cause: options.cause });
    this.kind = kind;
    this.afterMs = options.afterMs;
  }
}

/** Throw it in a column's `fill`: it will not work. The row is dropped, or the row group when the task is for a whole one. */
export class Drop extends Error {
  override readonly name = "Drop";
  /** What happened. */
  readonly kind: FailureKind;

  constructor(kind: FailureKind = "other", options: { readonly message?: string; readonly cause?: unknown } = {}) {
    super(options.message ?? kind.replaceAll("_", " "), { cause: options.cause });
    this.kind = kind;
  }
}

/**
 * Throw it in a column's `fill`: its provider or model cannot be used any more. The row is neither made nor dropped; the run finishes
 * what it can without it, and stops. A `DeniedError` for that reason means the same.
 */
export class Unavailable extends Error {
  override readonly name = "Unavailable";
}

/** Throw it in a column's `fill`: a bug. The run stops, and its report says so. */
export class Fatal extends Error {
  override readonly name = "Fatal";
}

/**
 * Says what an error means for its task: what it returns counts in place of the error. `undefined` leaves the error to the
 * rules of {@link Pipeline}.
 */
export type ClassifyError = (error: unknown, task: Task) => Retry | Drop | Unavailable | Fatal | undefined;

/** An outcome as the core takes it. */
export interface Outcome {
  readonly code: number;
  readonly afterMs: number;
  readonly message: string;
}

export const MADE = 0;
export const SKIPPED = 1;
const CANCELLED = 2;
const UNAVAILABLE = 3;
const FIRST_RETRY = 16;
const FIRST_FAILURE = 32;
/** A bug: told with its message. */
export const BROKEN = 64;

export function isFailure(code: number): boolean {
  return code >= FIRST_RETRY && code < BROKEN;
}

/** The number by which a report names this failure, once it has cost a row. */
export function dropCode(code: number): number {
  return code >= FIRST_FAILURE ? (code - FIRST_FAILURE) << 4 : 1 | ((code - FIRST_RETRY) << 4);
}

/** What a thrown error means, by the rules in the documentation of `Pipeline`. */
export function outcomeOf(thrown: unknown, task: Task, classify: ClassifyError | undefined): Outcome {
  let error = thrown;
  try {
    error = classify?.(thrown, task) ?? thrown;
  } catch (failure) {
    return { code: BROKEN, afterMs: NaN, message: `classify threw: ${messageOf(failure)}` };
  }
  const message = messageOf(error);
  const refusal = isOurs(error) ? undefined : answerOf(error);
  if (refusal !== undefined) error = meaningOf(refusal, message);
  const outcome = (code: number, afterMs = NaN): Outcome => ({ code, afterMs, message });
  if (error instanceof Retry) {
    const afterMs = error.afterMs;
    return outcome(FIRST_RETRY + Math.max(RETRY_KINDS.indexOf(error.kind), 0), typeof afterMs === "number" && afterMs >= 0 ? afterMs : NaN);
  }
  if (error instanceof Drop) return outcome(FIRST_FAILURE + indexOfFailure(error.kind));
  if (error instanceof Unavailable) return outcome(UNAVAILABLE);
  if (error instanceof Fatal) return outcome(BROKEN);
  switch (nameOf(error)) {
    case "DeniedError":
      return denied(error, outcome);
    case "FreedError":
      return outcome(CANCELLED);
    case "TimeoutError":
      return outcome(FIRST_RETRY + RETRY_KINDS.indexOf("timeout"));
    case "AbortError":
      return outcome(task.signal.aborted ? CANCELLED : FIRST_FAILURE + indexOfFailure("other"));
    default:
      return outcome(FIRST_FAILURE + indexOfFailure("other"));
  }
}

function isOurs(error: unknown): boolean {
  return error instanceof Retry || error instanceof Drop || error instanceof Unavailable || error instanceof Fatal;
}

function denied(error: unknown, outcome: (code: number) => Outcome): Outcome {
  switch ((error as { reason?: unknown }).reason) {
    case "shutdown":
    case "cancelled":
      return outcome(CANCELLED);
    case "unavailable":
      return outcome(UNAVAILABLE);
    case "unregistered":
      return outcome(BROKEN);
    default:
      return outcome(FIRST_RETRY + RETRY_KINDS.indexOf("admission_timeout"));
  }
}

function indexOfFailure(kind: FailureKind): number {
  const index = FAILURE_KINDS.indexOf(kind);
  return index < 0 ? FAILURE_KINDS.length - 1 : index;
}

/** What an error says: a text, whatever was thrown. */
export function messageOf(error: unknown): string {
  try {
    if (!(error instanceof Error)) return String(error);
    const { message, name }: { message: unknown; name: unknown } = error;
    return String(message === undefined || message === "" ? name : message);
  } catch {
    return "(an error that has no words)";
  }
}

/** An answer that says how a call ended: a `Response`, or an error of an API client, which has its status and headers. */
export interface Refusal {
  readonly status: number;
  readonly head: HeadReading;
}

/** Reads a `Response`, or an error that has a `status` from 400 to 599. */
export function answerOf(value: unknown): Refusal | undefined {
  if (typeof value !== "object" || value === null || !("status" in value)) return undefined;
  const { status } = value;
  if (typeof status !== "number" || status < 400 || status > 599) return undefined;
  const headers = "headers" in value ? value.headers : undefined;
  return { status, head: readHead({ status, headers: { get: (name) => header(headers, name) } }) };
}

function header(headers: unknown, name: string): string | undefined {
  if (typeof headers !== "object" || headers === null) return undefined;
  const { get } = headers as { get?: unknown };
  const value: unknown = typeof get === "function" ? get.call(headers, name) : (headers as Record<string, unknown>)[name];
  return typeof value === "string" ? value : undefined;
}

/** What such an answer means for the task. */
function meaningOf({ status, head }: Refusal, message: string): Retry | Drop | Unavailable {
  const afterMs = head.retryAfterMs;
  switch (head.outcome) {
    case "rate_limited":
      return new Retry("rate_limited", { message, afterMs });
    case "provider_timeout":
      return new Retry("timeout", { message, afterMs });
    case "provider_failure":
      return new Retry("server_error", { message, afterMs });
    case "key_refused":
    case "quota_exhausted":
    case "model_not_found":
      return new Unavailable(message);
    default:
      return new Drop(status === 404 ? "not_found" : "request", { message });
  }
}

/** What the answer of a call means for its task, if it is a `Response` that is not ok. */
export function refusalOf(answer: unknown): Retry | Drop | Unavailable | undefined {
  const refusal = isResponse(answer) ? answerOf(answer) : undefined;
  return refusal && meaningOf(refusal, `status ${refusal.status}`);
}
