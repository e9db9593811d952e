/** Why a run ended. */
export type StopReason =
  | { reason: "completed" }
  | { reason: "wound_down" }
  | { reason: "drained" }
  | { reason: "cancelled" }
  | { reason: "early_shutdown"; failures: number; window: number }
  | { reason: "checkpoint_failed"; row_group: number; why: string }
  | { reason: "hook_failed"; row_group: number; hook: "pre_batch" | "post_batch"; why: string }
  | { reason: "fatal"; column: number; row_group: number; cause: string }
  | { reason: "stuck"; why: string };

/** A retryable failure. */
export type RetryKind = "rate_limited" | "timeout" | "server_error" | "connection" | "admission_timeout" | "unreadable_answer";

/** A final failure: the same task would fail again. */
export type FailureKind =
  | "request"
  | "authentication"
  | "not_found"
  | "malformed_answer"
  | "template"
  | "other"
  | "truncated_answer"
  | "content_filtered"
  | "refused";

/** Why a row was dropped. */
export type DropReason = { failed: FailureKind } | { retries_exhausted: RetryKind } | "worker_lost" | "pre_batch";

/** The counts of the tasks of one column. A task counts once for each time a worker had it. */
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

/**
 * The results of a run: `rows = rows_resumed + rows_in + rows_not_started`, and `rows_in = rows_out +
 * rows_dropped + rows_unmade`.
 */
export interface RunReport {
  stop: StopReason;
  rows: number;
  rows_resumed: number;
  rows_in: number;
  rows_out: number;
  rows_dropped: number;
  /** Rows that were started and neither saved nor dropped, because the run stopped. */
  rows_unmade: number;
  rows_not_started: number;
  /** Dropped rows by column and reason. */
  dropped: { column: number; reason: DropReason; rows: number }[];
  row_groups: number;
  row_groups_done: number;
  columns: { column: number; name: string; tasks: TaskCounts }[];
  started: Nanos;
  ended: Nanos;
}

/** The results of a run, at its end or so far. */
export interface RunSoFar extends Omit<RunReport, "stop"> {
  /** Why it ended; null while it runs. */
  stop: StopReason | null;
  /** When it ended; the present time while it runs. */
  ended: Nanos;
}

/** Why a slot of a resource was idle. */
export type IdleCause =
  | "dependency_horizon"
  | "row_group_target"
  | "hook_or_checkpoint"
  | "retry_pause"
  | "run_ending"
  | "too_few_slots"
  | "other_resource"
  | "group_cap"
  | "borrow_debt"
  | "policy"
  | "yielded_first"
  | "unexplained"
  | "task_admission"
  | "request_limit"
  | "cooldown"
  | "provider_cap"
  | "task_slots"
  | "request_turn";

/** The use of one resource, in slot-nanoseconds: exact up to 2^53, to 16 digits above. */
export interface ResourceFigures {
  name: string;
  /** Its limit at the end: for a request resource the effective maximum. */
  limit: number;
  busy_slot_ns: number;
  /** `starved + frontier`. */
  idle_slot_ns: number;
  /** Slots in use above the limit. */
  overhang_slot_ns: number;
  /** Idle while a queued task or call required the resource. */
  starved_slot_ns: number;
  /** Idle while none did. */
  frontier_slot_ns: number;
  /** The integral of (slots in use)^2. */
  busy_squared_slot_ns: number;
  /** The integral of the adaptive limit; of a task resource, of its limit. */
  adaptive_limit_slot_ns: number;
  span_ns: Nanos;
  max_leased: number;
  max_demand: number;
  /** The idle time by cause, the largest first. */
  why_idle: { cause: IdleCause; resource: string | null; slot_ns: number }[];
}

/** A distribution of times. */
export interface Distribution {
  count: number;
  mean_ns: Nanos;
  p50_ns: Nanos;
  p95_ns: Nanos;
  max_ns: Nanos;
}

/** How the capacity of a run was used. */
export interface RunFigures {
  span_ns: Nanos;
  /** How it ended; null while it runs. */
  stop: StopReason["reason"] | null;
  /** The resources of the task stage: `submission`, then the others in their order. */
  tasks: ResourceFigures[];
  /** The request resources, by model. */
  requests: ResourceFigures[];
  queue_age: Distribution;
  downstream_ready_gap: Distribution;
  request_wait: Distribution;
  request_wait_while_leased_ns: number;
  first_model_dispatch_ns: Nanos | null;
  first_model_column: number | null;
  dispatched: number;
  advisory_skips: number;
  liveness_overrides: number;
  yields: number;
  hidden_waiters: number;
  maxima: { row_groups: number; queued: number; workers: number; yielded: number; in_flight: number; waiters: number };
  missing_events: number;
}

/** The results of a simulated run: the JSON of `tidegate simulate --json`. */
export interface Report {
  /** The version of this object. */
  schema: number;
  /** The scenario's name. */
  scenario: string;
  title: string;
  description: string;
  seed: number;
  /** A hash over every decision, in 16 hexadecimal digits. */
  digest: string;
  /** The first violated invariant, if any: a defect of the scheduler. */
  violation: string | null;
  /** The last events before the violation, the oldest first. */
  led_to_it: string[];
  /** The results of the run. */
  run: RunSoFar;
  /** The least time that any scheduler needs for the scenario. */
  lower_bound_ns: Nanos;
  lower_bound_set_by: string;
  /** The responses of each provider. */
  providers: { model: string; accepted: number; refused: number; limit: number }[];
  figures: RunFigures;
}
