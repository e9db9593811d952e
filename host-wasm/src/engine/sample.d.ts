/** One provider at one instant. */
export interface ProviderSample {
  name: string;
  /** Calls that admission allows at once. */
  limit: number;
  /** The most that the limit may come to. */
  effective_max: number;
  /** What decides the limit. */
  algorithm: LimitChoice["name"];
  /** The limit that the first cut found too high; 0 before any. */
  rate_limit_ceiling: number;
  /** The start-up ramp that runs: the limit it climbs to, and when it is there (null until the first request). */
  ramp: { target: number; ends: Nanos | null } | null;
  /** Calls that are out. */
  in_flight: number;
  /** Calls that wait for admission. */
  waiting: number;
  /** Those of `waiting` whose workers hold nothing meanwhile. */
  yielded: number;
  /** Calls that the provider would truly bear at once. */
  capacity: number;
  /** Whether that was set while the run went on. */
  changed: boolean;
  /** Calls the provider took, since the start. */
  accepted: number;
  /** Calls the provider answered with 429, since the start. */
  refused: number;
  /** When the running cooldown ends. */
  cooldown_until: Nanos | null;
  /** When a burst of 429 that somebody called for ends. */
  refusing_until: Nanos | null;
  /** When a slow patch that somebody called for ends. */
  slow_until: Nanos | null;
  /** How many times as long calls take in it; 1 outside of one. */
  slow_factor: number;
  /** Slot-time since the start. */
  idle: IdleFigures;
}

/**
 * Integrals over virtual time, in slot-nanoseconds: exact up to 2^53, to 16 digits above. Idle time is starved while a call
 * waits, else there was no demand.
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
  /** Their call is out. */
  calling: number;
  /** They have a worker and wait for a call. */
  waiting: number;
  /** Those of `waiting` that hold nothing meanwhile. */
  yielded: number;
  /** At their local work. */
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
  /** Workers it may have while others press; null: unbounded. */
  limit: number | null;
  /** What it owes. */
  debt: number;
}

/** One resource of the task stage at one instant. */
export interface SlotSample {
  name: string;
  used: number;
  limit: number;
  /** Queued tasks that want it. */
  demand: number;
}

/** Why the control loop does not want more row groups in work. */
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
  /** How many the run wants to have in work. */
  target: number;
  /** Saved. */
  done: number;
  /** Of the whole run. */
  total: number;
  /** Why it does not want more, if a control loop chooses. */
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
