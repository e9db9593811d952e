/** One provider at one instant. */
export interface ProviderSample {
  name: string;
  /** Calls that admission allows at once. */
  limit: number;
  /** The maximum of the limit. */
  effective_max: number;
  /** The algorithm that sets the limit. */
  algorithm: LimitChoice["name"];
  /** The limit at which the first decrease happened; 0 before any. */
  rate_limit_ceiling: number;
  /** The start-up ramp in progress: its target limit and its end (null until the first request). */
  ramp: { target: number; ends: Nanos | null } | null;
  /** Calls in flight. */
  in_flight: number;
  /** Calls that wait for admission. */
  waiting: number;
  /** Those of `waiting` whose workers hold no resources while they wait. */
  yielded: number;
  /** The provider's true capacity of concurrent calls. */
  capacity: number;
  /** Whether that was set while the run went on. */
  changed: boolean;
  /** Calls the provider accepted, since the start. */
  accepted: number;
  /** Calls the provider answered with 429, since the start. */
  refused: number;
  /** When the running cooldown ends. */
  cooldown_until: Nanos | null;
  /** When a requested burst of 429 ends. */
  refusing_until: Nanos | null;
  /** When a requested slow phase ends. */
  slow_until: Nanos | null;
  /** How many times as long calls take in it; 1 outside of one. */
  slow_factor: number;
  /** Slot-time since the start. */
  idle: IdleFigures;
}

/**
 * Integrals over virtual time, in slot-nanoseconds: exact up to 2^53, to 16 digits above. Idle time is
 * starved while a call waits, else there was no demand.
 */
export interface IdleFigures {
  busy_slot_ns: number;
  idle_slot_ns: number;
  overhang_slot_ns: number;
  starved_slot_ns: number;
}

/** The tasks of one column at one instant. */
export interface ColumnSample {
  /** Ready, without a worker. */
  ready: number;
  /** Their call is in flight. */
  calling: number;
  /** They have a worker and wait for a call. */
  waiting: number;
  /** Those of `waiting` that hold nothing meanwhile. */
  yielded: number;
  /** In local work. */
  local: number;
  /** Ended well, since the start. */
  done: number;
  failed: number;
  skipped: number;
  dropped: number;
}

/** One fairness group at one instant. */
export interface GroupSample {
  name: string;
  kind: GroupKind;
  weight: number;
  /** Tasks that are ready and wait for a worker. */
  queued: number;
  /** Tasks that have a worker. */
  running: number;
  /** Workers it may have while other groups have ready tasks; null: unbounded. */
  limit: number | null;
  /** Its borrowing debt. */
  debt: number;
}

/** One resource of the task stage at one instant. */
export interface SlotSample {
  name: string;
  used: number;
  limit: number;
  /** Queued tasks that require it. */
  demand: number;
}

/** Why the control loop does not start more row groups. */
export type RowGroupBlock =
  | "no_pending_row_groups"
  | "max_admitted_rows"
  | "deferred_tasks"
  | "queued_tasks"
  | "no_model_resource"
  | "model_saturated"
  | "queued_model_demand"
  | "queued_work"
  | "at_cap";

/** The row groups at one instant. */
export interface RowGroupsSample {
  /** In work. */
  open: number;
  /** The target number of active row groups. */
  target: number;
  /** Saved. */
  done: number;
  /** Of the whole run. */
  total: number;
  /** Why the target does not grow, if a control loop sets it. */
  block: RowGroupBlock | null;
}

/** The figures of one instant. */
export interface Sample {
  /** Virtual time. */
  at: Nanos;
  /** Events so far. */
  steps: number;
  /** By model, in the scenario's order. */
  providers: ProviderSample[];
  /** In the order of `Layout.columns`. */
  columns: ColumnSample[];
  /** In the order of `Layout.groups`. */
  groups: GroupSample[];
  /** In the order of `Layout.slots`. */
  slots: SlotSample[];
  row_groups: RowGroupsSample;
  /** Ready tasks that wait for a worker. */
  queue_depth: number;
  /** Tasks that have a worker. */
  running: number;
  rows_done: number;
  rows_dropped: number;
  rows_total: number;
  finished: boolean;
}
