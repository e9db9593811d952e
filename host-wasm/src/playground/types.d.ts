/** A scenario that can be played. */
export interface ScenarioInfo {
  /** What `new Playground(name, seed)` takes. */
  name: string;
  title: string;
  description: string;
}

/** One provider at one instant. Instants are nanoseconds of virtual time. */
export interface ProviderSample {
  name: string;
  /** Calls that admission allows at once. */
  limit: number;
  /** Calls that are out. */
  in_flight: number;
  /** Calls that wait for admission. */
  waiting: number;
  /** Calls that the provider would truly bear at once. */
  capacity: number;
  /** Calls the provider took, since the start. */
  accepted: number;
  /** Calls the provider answered with 429, since the start. */
  refused: number;
  /** When the running cooldown ends. */
  cooldown_until: number | null;
  /** Slot-time since the start. */
  idle: IdleFigures;
}

/** Integrals over virtual time, in slot-nanoseconds. Idle time is starved while a call waits, else there was no demand. */
export interface IdleFigures {
  busy_slot_ns: bigint;
  idle_slot_ns: bigint;
  overhang_slot_ns: bigint;
  starved_slot_ns: bigint;
}

/** The figures of one instant. */
export interface Sample {
  /** Virtual time in nanoseconds. */
  at: number;
  providers: ProviderSample[];
  /** Ready tasks that wait for a worker. */
  queue_depth: number;
  /** Tasks that have a worker. */
  running: number;
  rows_done: number;
  rows_dropped: number;
  rows_total: number;
  finished: boolean;
}

/** Why a run ended. */
export type StopReason =
  | { reason: "completed" }
  | { reason: "cancelled" }
  | { reason: "early_shutdown"; failures: number; window: number }
  | { reason: "provider_exhausted"; group: string[]; waited: number }
  | { reason: "checkpoint_failed"; row_group: number; why: string }
  | { reason: "hook_failed"; row_group: number; hook: "pre_batch" | "post_batch"; why: string }
  | { reason: "fatal"; column: number; row_group: number; cause: string }
  | { reason: "stuck"; why: string };

/** A failure that may pass. */
export type RetryKind = "rate_limited" | "timeout" | "server_error" | "connection" | "admission_timeout";

/** A failure that the same work would meet again. */
export type FailureKind = "request" | "authentication" | "not_found" | "malformed_answer" | "template" | "other";

/** Why a row is not in the output. */
export type DropReason =
  | { failed: FailureKind }
  | { retries_exhausted: RetryKind }
  | "worker_lost"
  | "stopped"
  | "unsaved";

/** What became of the tasks of one column. A task counts once for each time a worker had it. */
export interface TaskCounts {
  spawned: number;
  succeeded: number;
  retryable: number;
  failed: number;
  fatal: number;
  cancelled: number;
  ignored: number;
  /** Workers that skipped the column for their row. */
  skipped: number;
  /** Tasks that were skipped with an upstream, without a worker. */
  skipped_with_upstream: number;
}

/** What a run did: `rows = rows_resumed + rows_in + rows_not_started`, and `rows_in = rows_out + rows_dropped`. */
export interface RunReport {
  stop: StopReason;
  rows: number;
  rows_resumed: number;
  rows_in: number;
  rows_out: number;
  rows_dropped: number;
  rows_not_started: number;
  /** Dropped rows by column (null for complete rows that were not saved) and reason. */
  dropped: { column: number | null; reason: DropReason; rows: number }[];
  row_groups: number;
  row_groups_done: number;
  columns: { column: number; name: string; tasks: TaskCounts }[];
  /** Virtual time in nanoseconds. */
  started: number;
  ended: number;
}

/** The measures kept per provider: see `Playground.readTelemetry`. */
export type TelemetryField = "limit" | "inFlight" | "peak" | "capacity" | "refused" | "cooling";
