/** The structure of a run. It does not change. */
export interface Layout {
  /** In the plan's order: every column comes after those it needs. */
  columns: LayoutColumn[];
  /** Fairness groups. */
  groups: { name: string; kind: GroupKind }[];
  /** By model, in the scenario's order. */
  providers: { name: string; cap: number }[];
  /** Resources of the task stage; the first is `submission`, the workers. */
  slots: { name: string }[];
  /** How many worker slots `readLanes()` shows, at most 64. */
  lanes: number;
}

/** A column of the pipeline's graph. */
export interface LayoutColumn {
  name: string;
  /** What its tasks count as. */
  kind: GroupKind;
  /** An index into `Layout.groups`. */
  group: number;
  /** An index into `Layout.providers`; null: local work. */
  model: number | null;
  /** Indices of the columns it needs. */
  after: number[];
  strategy: Strategy;
}

/**
 * How the slot-time of one resource was used, from the start to now: shares that sum to 1, or are all 0 at
 * the start.
 */
export interface IdleSplit {
  /** `submission`, or a model. */
  name: string;
  busy: number;
  /** Idle while a queued task or call required it. */
  starved: number;
  /** Idle while none did. */
  frontier: number;
  /** The idle part by cause, the largest first; `share` is of all slot-time. */
  why: { cause: IdleCause; words: string; share: number }[];
}

/** A sample, and how the capacity was used so far. */
export interface PlaygroundSample extends Sample {
  /** For `submission`, then each model. */
  idle: IdleSplit[];
}

/** The subject of `why()`: an index into the arrays of `Layout`, or a worker slot shown by `readLanes()`. */
export type About = { column: number } | { group: number } | { provider: number } | { slots: number } | { lane: number } | "row_groups";

/** The measures kept per provider: see `Playground.readTelemetry`. */
export type TelemetryField = "limit" | "inFlight" | "peak" | "capacity" | "refused" | "cooling";

/** The kind of a span in `readLanes()`, by its value: local work, waiting for a call, call in flight. */
export type LaneKind = 0 | 1 | 2;
