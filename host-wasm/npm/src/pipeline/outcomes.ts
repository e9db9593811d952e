import type { Ending } from "../gate/call.js";
import { answerOfThrown, type ThrownAnswer } from "../gate/thrown.js";
import { LOCAL_CANCELLED, OUTCOMES, nameOf, outcomeOfConnection, outcomeOfError, SUCCESS, UNEXPECTED } from "../outcome.js";
import { headNumbers } from "../response.js";
import { type FailureKind, outcomeOfCall, type RetryKind } from "../wasm/tidegate.js";
import type { Task } from "./task.js";

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
  "truncated_answer",
  "content_filtered",
  "refused",
];

/**
 * Throw it in a column's `fill`: the task may work later, and is tried again.
 *
 * ```ts
 * import { Pipeline, Retry } from "tidegate";
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
  /**
   * What happened. `rate_limited` and `admission_timeout` are tried again as often as it takes; the others in
   * the run's `retries`.
   */
  readonly kind: RetryKind;
  /** The pause that the provider asked for, in milliseconds. */
  readonly afterMs: number | undefined;
  /** The HTTP status of the answer, if there was one: failures are counted by it. */
  readonly status: number | undefined;

  constructor(
    kind: RetryKind,
    options: { readonly afterMs?: number | undefined; readonly status?: number | undefined; readonly message?: string; readonly cause?: unknown } = {},
  ) {
    super(options.message ?? kind.replaceAll("_", " "), { cause: options.cause });
    this.kind = kind;
    this.afterMs = options.afterMs;
    this.status = options.status;
  }
}

/**
 * Throw it in a column's `fill`: it will not work. The row is dropped, or the row group when the task is for
 * a whole one.
 */
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
 * Throw it in a column's `fill`: its provider or model cannot be used any more. The row is neither made nor
 * dropped; the run finishes what it can without it, and stops. A `DeniedError` for that reason means the
 * same.
 */
export class Unavailable extends Error {
  override readonly name = "Unavailable";
}

/** Throw it in a column's `fill`: a bug. The run stops, and its report says so. */
export class Fatal extends Error {
  override readonly name = "Fatal";
}

/**
 * Says what an error means for its task: what it returns counts in place of the error. `undefined` leaves the
 * error to the rules of {@link Pipeline}.
 */
export type ClassifyError = (error: unknown, task: Task) => Retry | Drop | Unavailable | Fatal | undefined;

/** An outcome as the core takes it. */
export interface Outcome {
  readonly code: number;
  readonly afterMs: number;
  /** 0 for none. */
  readonly status: number;
  readonly message: string;
}

export const SUCCESS_CODE = 0;
export const SKIPPED = 1;
const CANCELLED = 2;
const UNAVAILABLE = 3;
const FIRST_RETRY = 16;
const FIRST_FAILURE = 32;
/** A bug: raw with its message. */
export const FATAL = 64;

export function isFailure(code: number): boolean {
  return code >= FIRST_RETRY && code < FATAL;
}

/** Why a row is dropped for this failure, and its kind. */
export function dropOf(code: number): { readonly reason: string; readonly kind: string | undefined } {
  return code >= FIRST_FAILURE
    ? { reason: "failed", kind: FAILURE_KINDS[code - FIRST_FAILURE] }
    : { reason: "retries_exhausted", kind: RETRY_KINDS[code - FIRST_RETRY] };
}

/** How the calls ended that threw these. */
const endings = new WeakMap<object, Ending>();

/** @internal A call threw `error` and ended so: what that means for its task is the core's to say. */
export function noteEnding(error: unknown, ending: Ending): void {
  if (typeof error === "object" && error !== null) endings.set(error, ending);
}

/** What a thrown error means, by the rules in the documentation of `Pipeline`. */
export function outcomeOf(thrown: unknown, task: Task, classify: ClassifyError | undefined): Outcome {
  let error = thrown;
  try {
    error = classify?.(thrown, task) ?? thrown;
  } catch (failure) {
    return { code: FATAL, afterMs: NaN, status: 0, message: `classify threw: ${messageOf(failure)}` };
  }
  const message = messageOf(error);
  const outcome = (code: number, afterMs = NaN, status = 0): Outcome => ({ code, afterMs, status, message });
  if (!isOwnError(error)) {
    const name = nameOf(error);
    if (name === "DeniedError") return denied(error, outcome);
    if (name === "FreedError") return outcome(CANCELLED);
    const answer = answerOfThrown(error);
    const ending = endingOf(error, answer);
    if (ending.outcome === LOCAL_CANCELLED && task.signal.aborted) return outcome(CANCELLED);
    // What cannot be parsed is an answer that came otherwise than it was asked for.
    const isUnreadable = ending.outcome === UNEXPECTED && name === "SyntaxError";
    error = isUnreadable ? new Retry("unreadable_answer") : (meaningOf(ending, answer?.status ?? 0, message) ?? new Drop("other"));
  }
  if (error instanceof Retry) {
    const { afterMs, status } = error;
    const code = FIRST_RETRY + Math.max(RETRY_KINDS.indexOf(error.kind), 0);
    return outcome(code, typeof afterMs === "number" && afterMs >= 0 ? afterMs : NaN, typeof status === "number" ? status : 0);
  }
  if (error instanceof Drop) return outcome(FIRST_FAILURE + indexOfFailure(error.kind));
  if (error instanceof Unavailable) return outcome(UNAVAILABLE);
  return outcome(FATAL);
}

function isOwnError(error: unknown): boolean {
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
      return outcome(FATAL);
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

/** How far an error is followed to what caused it. */
const CAUSES = 4;

/**
 * How the call of an error ended: as the gate was raw, where this error or what caused it comes from a call.
 */
function endingOf(error: unknown, answer: ThrownAnswer | undefined): Ending {
  let cause = error;
  for (let depth = 0; depth < CAUSES && typeof cause === "object" && cause !== null; depth += 1) {
    const ending = endings.get(cause);
    if (ending !== undefined && ending.outcome !== UNEXPECTED && ending.outcome !== SUCCESS) return ending;
    cause = (cause as { cause?: unknown }).cause;
  }
  if (answer !== undefined) {
    const [outcome = UNEXPECTED, retryAfterMs = NaN] = headNumbers(answer, answer.body);
    return { outcome, retryAfterMs };
  }
  return { outcome: outcomeOfError(error, outcomeOfConnection(error) ?? UNEXPECTED), retryAfterMs: NaN };
}

/**
 * @internal What the end of a call means for its task, if it failed; `status` is 0 if there was no answer.
 */
export function meaningOf({ outcome, retryAfterMs }: Ending, status: number, message = textOf(outcome, status)): Retry | Drop | Unavailable | undefined {
  const code = outcomeOfCall(outcome);
  if (code >= FIRST_FAILURE) {
    const kind = status === 404 ? "not_found" : (FAILURE_KINDS[code - FIRST_FAILURE] ?? "other");
    return new Drop(kind, { message });
  }
  if (code >= FIRST_RETRY) {
    const afterMs = Number.isNaN(retryAfterMs) ? undefined : retryAfterMs;
    return new Retry(RETRY_KINDS[code - FIRST_RETRY] ?? "server_error", { message, afterMs, status: status === 0 ? undefined : status });
  }
  return code === UNAVAILABLE ? new Unavailable(message) : undefined;
}

function textOf(outcome: number, status: number): string {
  return status === 0 ? `the call ended as ${OUTCOMES[outcome]?.replaceAll("_", " ")}` : `status ${status}`;
}
