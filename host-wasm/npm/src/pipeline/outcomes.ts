import type { Task } from "./task.js";

/** A failure that may pass. */
export type RetryKind = "rate_limited" | "timeout" | "server_error" | "connection" | "admission_timeout";

/** A failure that the same work would meet again. */
export type FailureKind = "request" | "authentication" | "not_found" | "malformed_answer" | "template" | "other";

/** The kinds in the order of their numbers. */
export const RETRY_KINDS: readonly RetryKind[] = ["rate_limited", "timeout", "server_error", "connection", "admission_timeout"];
export const FAILURE_KINDS: readonly FailureKind[] = [
  "request",
  "authentication",
  "not_found",
  "malformed_answer",
  "template",
  "other",
];

/** Throw it in a column's `fill`: the task may work later, and is tried again. */
export class Retry extends Error {
  override readonly name = "Retry";
  /** What happened. `rate_limited` and `admission_timeout` are tried again as often as it takes; the others in the run's `salvageRounds`. */
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

/** Throw it in a column's `fill`: a bug. The run stops, and its report says so. */
export class Fatal extends Error {
  override readonly name = "Fatal";
}

/**
 * Says what an error means for its task: what it returns counts in place of the error. `undefined` leaves the error to the
 * rules of {@link Pipeline}.
 */
export type Classify = (error: unknown, task: Task) => Retry | Drop | Fatal | undefined;

/** An outcome as the core takes it. */
export interface Outcome {
  readonly code: number;
  readonly afterMs: number;
  readonly message: string;
}

export const MADE = 0;
export const SKIPPED = 1;
const CANCELLED = 2;
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
export function outcomeOf(thrown: unknown, task: Task, classify: Classify | undefined): Outcome {
  let error = thrown;
  try {
    error = classify?.(thrown, task) ?? thrown;
  } catch (failure) {
    return { code: BROKEN, afterMs: NaN, message: `classify threw: ${messageOf(failure)}` };
  }
  const message = messageOf(error);
  const outcome = (code: number, afterMs = NaN): Outcome => ({ code, afterMs, message });
  if (error instanceof Retry) {
    const afterMs = error.afterMs;
    return outcome(FIRST_RETRY + Math.max(RETRY_KINDS.indexOf(error.kind), 0), afterMs !== undefined && afterMs >= 0 ? afterMs : NaN);
  }
  if (error instanceof Drop) return outcome(FIRST_FAILURE + indexOfFailure(error.kind));
  if (error instanceof Fatal) return outcome(BROKEN);
  switch (nameOf(error)) {
    case "DeniedError":
      return denied(error, outcome);
    case "TimeoutError":
      return outcome(FIRST_RETRY + RETRY_KINDS.indexOf("timeout"));
    case "AbortError":
      return outcome(task.signal.aborted ? CANCELLED : FIRST_FAILURE + indexOfFailure("other"));
    default:
      return outcome(FIRST_FAILURE + indexOfFailure("other"));
  }
}

function denied(error: unknown, outcome: (code: number) => Outcome): Outcome {
  switch ((error as { reason?: unknown }).reason) {
    case "shutdown":
    case "cancelled":
      return outcome(CANCELLED);
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

function nameOf(error: unknown): unknown {
  return typeof error === "object" && error !== null && "name" in error ? error.name : undefined;
}

export function messageOf(error: unknown): string {
  if (error instanceof Error) return error.message === "" ? error.name : error.message;
  try {
    return String(error);
  } catch {
    return "(an error that has no words)";
  }
}

/**
 * What the answer of a call means for its task, if it is a fetch `Response` that is not ok: 429 is `rate_limited`, with the
 * pause of `Retry-After`; 408 and 504 are `timeout`, other 5xx `server_error`; 401 and 403 drop the row as
 * `authentication`, 404 as `not_found`, any other as `request`.
 */
export function refusalOf(answer: unknown): Retry | Drop | undefined {
  if (typeof Response === "undefined" || !(answer instanceof Response) || answer.ok) return undefined;
  const { status } = answer;
  const message = `status ${status}${answer.statusText === "" ? "" : ` ${answer.statusText}`}`;
  if (status === 429) return new Retry("rate_limited", { message, afterMs: retryAfterMs(answer.headers) });
  if (status === 408 || status === 504) return new Retry("timeout", { message });
  if (status >= 500) return new Retry("server_error", { message, afterMs: retryAfterMs(answer.headers) });
  if (status < 400) return undefined;
  if (status === 401 || status === 403) return new Drop("authentication", { message });
  return new Drop(status === 404 ? "not_found" : "request", { message });
}

function retryAfterMs(headers: Headers): number | undefined {
  const text = headers.get("retry-after");
  if (text === null) return undefined;
  const seconds = Number(text);
  const ms = Number.isFinite(seconds) ? seconds * 1000 : Date.parse(text) - Date.now();
  return Number.isFinite(ms) ? Math.max(ms, 0) : undefined;
}
