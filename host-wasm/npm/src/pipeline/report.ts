import { FAILURE_KINDS, type FailureKind, RETRY_KINDS, type RetryKind } from "./outcomes.js";

/** What became of the tasks of one column. A task counts once for each time a worker had it. */
export interface TaskCounts {
  /** Tasks begun. */
  readonly spawned: number;
  /** Those that made their column. */
  readonly succeeded: number;
  /** Those whose `when` said no. */
  readonly skipped: number;
  /** Failures that may pass. */
  readonly retryable: number;
  /** Failures for good. */
  readonly failed: number;
  /** Bugs reported. */
  readonly fatal: number;
  /** Tasks that were told to stop. */
  readonly cancelled: number;
  /** Tasks that ended after their row was dropped, whatever became of them. */
  readonly ignored: number;
  /** Tasks skipped with an upstream; none was begun. */
  readonly skippedWithUpstream: number;
}

/** Why a row was given up. */
export type DropReason =
  | { readonly reason: "failed"; readonly kind: FailureKind }
  | { readonly reason: "retries_exhausted"; readonly kind: RetryKind }
  | { readonly reason: "worker_lost" | "pre_batch" | "unknown" };

/** Why a row group was not saved. */
export type DiscardReason = (typeof DISCARDS)[number];

/** Rows that were given up, by cause. */
export type DroppedRows = DropReason & {
  /** The column that failed, or was still missing when the hook left the rows out. */
  readonly column: string;
  /** How many rows. */
  readonly rows: number;
  /** The first few different messages of the errors behind it. */
  readonly messages: readonly string[];
};

/** Why a run ended. */
export type Stop =
  | { readonly reason: "completed" | "wound_down" | "drained" | "cancelled" }
  /** Too many of the latest final outcomes were failures. */
  | { readonly reason: "early_shutdown"; readonly failures: number; readonly window: number }
  | { readonly reason: "checkpoint_failed"; readonly rowGroup: number; readonly why: string }
  | { readonly reason: "hook_failed"; readonly rowGroup: number; readonly hook: Hook; readonly why: string }
  | { readonly reason: "fatal"; readonly rowGroup: number; readonly column: string; readonly why: string }
  | { readonly reason: "stuck"; readonly why: string }
  /** A provider or model could not be used any more, or answered nothing but rate limits for too long. No row is dropped for it. */
  | { readonly reason: "provider_unavailable"; readonly group: string };

/** A hook of a row group. */
export type Hook = "pre_batch" | "post_batch";

/** What a run did. `rows = rowsResumed + rowsIn + rowsNotStarted`, and `rowsIn = rowsOut + rowsDropped + rowsUnmade`. */
export interface Report {
  /** Why it ended. */
  readonly stop: Stop;
  /** Rows of the whole run. */
  readonly rows: number;
  /** Rows that earlier runs saw to. */
  readonly rowsResumed: number;
  /** Rows of the row groups this run began. */
  readonly rowsIn: number;
  /** Complete rows this run saved. */
  readonly rowsOut: number;
  /** Rows this run gave up. */
  readonly rowsDropped: number;
  /** Rows this run began, and neither saved nor gave up, because it stopped. */
  readonly rowsUnmade: number;
  /** Rows of row groups that were never begun. */
  readonly rowsNotStarted: number;
  /** `rowsDropped` by column and reason. */
  readonly dropped: readonly DroppedRows[];
  /** Row groups of the whole run. */
  readonly rowGroups: number;
  /** Row groups saved with every row made or dropped, by earlier runs too. */
  readonly rowGroupsDone: number;
  /** The tasks of each column, by its name, in the order of definition. */
  readonly columns: Readonly<Record<string, TaskCounts>>;
  /** How long the run took, in milliseconds. */
  readonly elapsedMs: number;
}

/** Why no further row group is begun. */
export type RowGroupBlock = (typeof BLOCKS)[number];

/** Where a run stands. */
export interface Progress {
  /** Rows of the whole run. */
  readonly rowsTotal: number;
  /** Complete rows, those of earlier runs and those not yet saved included. */
  readonly rowsDone: number;
  /** Rows given up. */
  readonly rowsDropped: number;
  /** Rows of row groups that have left without them, because the run stops. */
  readonly rowsUnmade: number;
  /** Row groups of the whole run. */
  readonly rowGroupsTotal: number;
  /** Row groups saved, by earlier runs too. */
  readonly rowGroupsDone: number;
  /** Row groups begun and not yet saved. */
  readonly rowGroupsActive: number;
  /** Row groups it wants to have in work. */
  readonly rowGroupTarget: number;
  /** Why it does not want more, if a control loop chooses. */
  readonly rowGroupBlock: RowGroupBlock | null;
  /** Tasks at work. */
  readonly running: number;
  /** Those of them that hold nothing while they wait for a call. */
  readonly suspended: number;
  /** Tasks ready, and waiting for a worker slot. */
  readonly queued: number;
  /** Tasks paused, because a provider asked for it. */
  readonly delayed: number;
  /** The tasks of each column, by its name, in the order of definition. */
  readonly columns: Readonly<Record<string, TaskCounts>>;
  /** Whether the run is over. */
  readonly finished: boolean;
}

export const BLOCKS = [
  "no_pending_row_groups",
  "max_admitted_rows",
  "deferred_tasks",
  "queued_tasks",
  "no_model_resource",
  "model_saturated",
  "queued_model_demand",
  "queued_work",
  "at_cap",
] as const;

export const DISCARDS = ["stopped", "unsaved", "hook_failed"] as const;

const REASONS = ["worker_lost", "pre_batch"] as const;

export function dropReason(code: number): DropReason {
  const kind = code >> 4;
  switch (code & 15) {
    case 0:
      return { reason: "failed", kind: FAILURE_KINDS[kind] ?? "other" };
    case 1:
      return { reason: "retries_exhausted", kind: RETRY_KINDS[kind] ?? "server_error" };
    default:
      return { reason: REASONS[(code & 15) - 2] ?? "unknown" };
  }
}

/** Reads numbers one after the other. */
class Reader {
  #at = 0;
  readonly #numbers: ArrayLike<number>;

  constructor(numbers: ArrayLike<number>) {
    this.#numbers = numbers;
  }

  next(): number {
    return this.#numbers[this.#at++] ?? NaN;
  }

  counts(names: readonly string[]): Record<string, TaskCounts> {
    const columns: Record<string, TaskCounts> = {};
    for (const name of names) {
      columns[name] = {
        spawned: this.next(),
        succeeded: this.next(),
        skipped: this.next(),
        retryable: this.next(),
        failed: this.next(),
        fatal: this.next(),
        cancelled: this.next(),
        ignored: this.next(),
        skippedWithUpstream: this.next(),
      };
    }
    return columns;
  }
}

export function readProgress(numbers: ArrayLike<number>, names: readonly string[]): Progress {
  const from = new Reader(numbers);
  return {
    rowsTotal: from.next(),
    rowsDone: from.next(),
    rowsDropped: from.next(),
    rowsUnmade: from.next(),
    rowGroupsTotal: from.next(),
    rowGroupsDone: from.next(),
    rowGroupsActive: from.next(),
    rowGroupTarget: from.next(),
    rowGroupBlock: BLOCKS[from.next()] ?? null,
    running: from.next(),
    suspended: from.next(),
    queued: from.next(),
    delayed: from.next(),
    finished: from.next() === 1,
    columns: from.counts(names),
  };
}

/** `messages` gives the words for rows dropped by a column for a reason. */
export function readReport(
  numbers: ArrayLike<number>,
  words: string | undefined,
  names: readonly string[],
  messages: (column: number, code: number) => readonly string[],
): Report {
  const from = new Reader(numbers);
  const stop = readStop(from.next(), from.next(), from.next(), words ?? "", names);
  const head = {
    rows: from.next(),
    rowsResumed: from.next(),
    rowsIn: from.next(),
    rowsOut: from.next(),
    rowsDropped: from.next(),
    rowsUnmade: from.next(),
    rowsNotStarted: from.next(),
    rowGroups: from.next(),
    rowGroupsDone: from.next(),
    elapsedMs: from.next(),
  };
  const dropped = Array.from({ length: from.next() }, (): DroppedRows => {
    const [column, code, rows] = [from.next(), from.next(), from.next()];
    return { column: names[column] ?? "", ...dropReason(code), rows, messages: messages(column, code) };
  });
  return { stop, ...head, dropped, columns: from.counts(names) };
}

function readStop(reason: number, first: number, second: number, why: string, names: readonly string[]): Stop {
  switch (reason) {
    case 0:
      return { reason: "completed" };
    case 1:
      return { reason: "wound_down" };
    case 2:
      return { reason: "cancelled" };
    case 3:
      return { reason: "early_shutdown", failures: first, window: second };
    case 5:
      return { reason: "checkpoint_failed", rowGroup: first, why };
    case 6:
      return { reason: "hook_failed", rowGroup: first, hook: second === 0 ? "pre_batch" : "post_batch", why };
    case 7:
      return { reason: "fatal", rowGroup: first, column: names[second] ?? "", why };
    case 9:
      return { reason: "provider_unavailable", group: why };
    case 10:
      return { reason: "drained" };
    default:
      return { reason: "stuck", why };
  }
}
