/** What a run is made of; does not change while it goes on. */
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

/** Where the slot-time of one resource went, from the start to now: shares that sum to 1, or are all 0 at the start. */
export interface IdleSplit {
  /** `submission`, or a model. */
  name: string;
  busy: number;
  /** Idle while something wanted it. */
  starved: number;
  /** Idle while nothing did. */
  frontier: number;
  /** The idle part by cause, the largest first; `share` is of all slot-time. */
  why: { cause: IdleCause; words: string; share: number }[];
}

/** A sample, and where the capacity went so far. */
export interface PlaygroundSample extends Sample {
  /** For `submission`, then each model. */
  idle: IdleSplit[];
}

/** What `why()` is asked about: indices into the arrays of `Layout`, or a worker slot shown by `readLanes()`. */
export type About = { column: number } | { group: number } | { provider: number } | { slots: number } | { lane: number } | "row_groups";

/** The measures kept per provider: see `Playground.readTelemetry`. */
export type TelemetryField = "limit" | "inFlight" | "peak" | "capacity" | "refused" | "cooling";

/** The third number of a span in `readLanes()`, by its value: at local work, waiting for a call, its call is out. */
export type LaneKind = 0 | 1 | 2;
