// What the dashboard is made of, given and gives back. The shell makes one `Dashboard` (or single components)
// per run, calls `show(view)` for each frame, and answers `on`.
import type { Change, Intervention, Layout, Model, PlaygroundAbout as About, PlaygroundSample, TelemetryField } from "../pkg/tidegate_playground.js";

/** One provider's history: an array per measure, as long as `View.times`. */
export type Columns = Record<TelemetryField, Float64Array>;

/**
 * One picture of a run. Everything in it is read during `show` only: the arrays may be views into a buffer
 * that goes back to the worker afterwards.
 */
export interface View {
  sample: PlaygroundSample;
  layout: Layout;
  /** The models of the scenario; if left out, no provider has a limit per minute. */
  models?: readonly Model[] | undefined;
  /** The time of each bucket of the history, in ms of virtual time. */
  times: Float64Array;
  /** The history of the provider at this index of the sample. Asked for only when its chart is drawn. */
  columns(provider: number): Columns;
  /**
   * Spans in worker slots as `Playground.readLanes` writes them: lane, start, end (NaN: it goes on), column,
   * kind.
   */
  lanes: Float64Array;
  /** How many spans `lanes` holds. */
  lanesCount: number;
  /**
   * How much of the latest virtual time the worker slots and the charts show while they follow the run, in
   * ms.
   */
  windowMs: number;
  /** How much of the latest virtual time `lanes` covers, in ms; `windowMs` if left out. */
  lanesMs?: number;
  /** The live changes so far that the charts mark; none when left out. */
  changes?: readonly Change[];
}

/** What a worker slot did at an instant in the past. */
export interface Past {
  /** In virtual ms. */
  at: number;
  /** The task that the slot had, step by step. */
  steps: string[];
}

/** What a person wants. */
export interface On {
  /**
   * Why does this wait? The shell shows the answer. With `past`, what is meant lies before the present
   * instant.
   */
  why(about: About, past?: Past): void;
  /**
   * The worker slots show this much of the latest virtual time, in ms; undefined: no more than `windowMs`.
   */
  past(ms: number | undefined): void;
  /**
   * Drags the provider's true capacity; undefined gives it back to the scenario. Comes with every movement of
   * the slider.
   */
  capacity(provider: number, slots: number | undefined): void;
  /**
   * A person is at these groups of very many: the views show them, and no others, until this comes with
   * undefined.
   */
  hold(groups: readonly number[] | undefined): void;
  /** Any other live change. */
  change(what: Intervention): void;
}
