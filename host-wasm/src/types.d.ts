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

/** Settings of a gate; each has a default. */
export interface GateOptions {
  /** Calls that may be out at once in the beginning. Default: as many as the resource was registered with. */
  initialLimit?: number;
  /** A bound on the limit, beside the one the resource was registered with. */
  maxLimit?: number;
  /** What the limit is multiplied with after a 429. Default 0.75. */
  decreaseFactor?: number;
  /** What the limit rises by. Default 1. */
  increaseStep?: number;
  /** How many successes in a row make it rise. Default 25. */
  successesUntilIncrease?: number;
  /** How long a resource rests after a 429 that names no time itself. Default 2000. */
  cooldownMs?: number;
  /** The longest rest, whatever the provider says. Default 600000. */
  maxCooldownMs?: number;
  /** Over how long a new resource warms up from one call at once. Default 0: not at all. */
  rampMs?: number;
  /** The longest wait of an `acquire` that names none. Default: no bound. */
  defaultTimeoutMs?: number;
}

/** The state of a resource at one instant. Instants and spans are nanoseconds. */
export interface ResourceSnapshot {
  at: number;
  /** Commands that the gate had carried out. */
  sequence: number;
  provider: string;
  model: string;
  domain: string;
  /** The most that the limit can become. */
  effective_max: number;
  /** The adaptive limit in force. */
  current_limit: number;
  /** Calls out. */
  in_flight: number;
  /** Leases that are out, as the ledger has them: always `in_flight`, or something leaks. */
  active_leases: number;
  /** When the oldest of them was granted, if instants were needed then. */
  oldest_lease: number | null;
  /** Releases in this resource's name that released nothing. */
  irregular_releases: { duplicate: number; stale: number; unknown_lease: number; wrong_controller: number };
  /** Calls that wait. */
  waiters: number;
  /** The end of the cooldown in force. */
  blocked_until: number | null;
  cooldown_remaining: number;
  /** The limit that the first cut found too high; 0 before any. */
  rate_limit_ceiling: number;
  consecutive_rate_limits: number;
  success_streak: number;
  last_outcome: Outcome | null;
  /** The start-up ramp that runs: the limit it climbs to, and when it is there (null until the first request). */
  ramp: { target: number; ends: number | null } | null;
  provider_cap: number;
  provider_in_flight: number;
  budgets: BudgetSnapshot[];
}

/** The state of a rate budget. */
export interface BudgetSnapshot {
  config: { dimension: BudgetDimension; limit: number; window: number; burst: number | null };
  /** The limit in force: the configured one, or a lower one that the provider named. */
  limit: number;
  /** What may be spent now; negative while it is overdrawn. */
  available: number;
  /** Estimates of calls that are out. */
  reserved: number;
}

/** What a budget counts. */
export type BudgetDimension = "requests" | "input_tokens" | "output_tokens" | "total_tokens";

/** Why a call may not go out. */
export type DenialReason =
  | "no_capacity"
  | "cooldown"
  | "budget_exhausted"
  | "queued_waiters_ahead"
  | "queue_timeout"
  | "cancelled"
  | "shutdown"
  | "unregistered";

/** What `acquire` rejects with and `tryAcquire` throws. */
export interface DeniedError extends Error {
  name: "DeniedError";
  reason: DenialReason;
  /** In how many milliseconds capacity is next known to change, if that is known. */
  changesInMs: number | undefined;
}

/** What became of a call. */
export type Outcome =
  | "success"
  | "rate_limited"
  | "provider_failure"
  | "provider_timeout"
  | "local_cancelled"
  | "local_timeout"
  | "unexpected";

/** What a decision log came to when it was told again. */
export interface ReplayedDecisions {
  /** Commands that were told. */
  entries: number;
  /** The digest of the scheduler's decisions: 16 hex digits. */
  run: string;
  /** The digest of request admission's. */
  requests: string;
  /** Whether both are those of the recorded run; `null` if the log was cut short. */
  equal: boolean | null;
}
