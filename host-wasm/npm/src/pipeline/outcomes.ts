import type { Ending } from "../gate/ending.js";
import { answerOfThrown, type ThrownAnswer } from "../gate/thrown.js";
import { LOCAL_CANCELLED, nameOf, outcomeOfConnection, outcomeOfError, SUCCESS, UNEXPECTED } from "../outcome.js";
import { headNumbers } from "../response.js";
import { type FailureKind, outcomeOfCall, type RetryKind } from "../wasm/tidegate.js";
import { FAILURE_KINDS, OUTCOMES, RETRY_KINDS } from "../wasm/tidegate_names.js";
import type { Task } from "./task.js";

/**
 * Thrown in a column's `fill`: the task may succeed later, and is retried.
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
   * The kind of failure. `rate_limited` and `admission_timeout` are retried without a bound, the others up to
   * the run's `retries`.
   */
  readonly kind: RetryKind;
  /** The Retry-After of the provider, in milliseconds. */
  readonly afterMs: number | undefined;
  /** The HTTP status of the response, if any. Failures are counted by it. */
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
 * Thrown in a column's `fill`: the task cannot succeed. Its row is dropped, or its row group if the task
 * fills a whole one.
 */
export class Drop extends Error {
  override readonly name = "Drop";
  /** The kind of failure. */
  readonly kind: FailureKind;

  constructor(kind: FailureKind = "other", options: { readonly message?: string; readonly cause?: unknown } = {}) {
    super(options.message ?? kind.replaceAll("_", " "), { cause: options.cause });
    this.kind = kind;
  }
}

/**
 * Thrown in a column's `fill`: its provider or model is unavailable. The row is neither completed nor
 * dropped. The run completes what it can without the provider, and stops. A `DeniedError` with the reason
 * `unavailable` has the same effect.
 */
export class Unavailable extends Error {
  override readonly name = "Unavailable";
}

/** Thrown in a column's `fill`: a bug. The run stops, and its report has the message. */
export class Fatal extends Error {
  override readonly name = "Fatal";
}

/**
 * Returns the error to use in place of the thrown one. With `undefined`, the rules of {@link Pipeline} apply
 * to the thrown error.
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
/** A bug, reported with its message. */
export const FATAL = 64;

export function isFailure(code: number): boolean {
  return code >= FIRST_RETRY && code < FATAL;
}

/** Returns the reason and kind with which a row is dropped for this failure. */
export function dropOf(code: number): { readonly reason: string; readonly kind: string | undefined } {
  return code >= FIRST_FAILURE
    ? { reason: "failed", kind: FAILURE_KINDS[code - FIRST_FAILURE] }
    : { reason: "retries_exhausted", kind: RETRY_KINDS[code - FIRST_RETRY] };
}

/** The ends of calls, by the error that each call threw. */
const endings = new WeakMap<object, Ending>();

/**
 * @internal Remembers how the call that threw `error` ended. The core decides what that means for the task.
 */
export function noteEnding(error: unknown, ending: Ending): void {
  if (typeof error === "object" && error !== null) endings.set(error, ending);
}

/** Returns the outcome of a thrown error, by the rules in the documentation of `Pipeline`. */
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
    // Parsing failed: the response is malformed.
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

/** Returns the message of any thrown value. */
export function messageOf(error: unknown): string {
  try {
    if (!(error instanceof Error)) return String(error);
    const { message, name }: { message: unknown; name: unknown } = error;
    return String(message === undefined || message === "" ? name : message);
  } catch {
    return "(an error without a readable message)";
  }
}

/** How many errors of a `cause` chain are read. */
const CAUSES = 4;

/**
 * Returns how the call behind an error ended: as recorded for the error or one of its causes, else as its
 * response or the error itself implies.
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
 * @internal Returns what the end of a call means for its task, if it failed. `status` is 0 without a
 * response.
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
