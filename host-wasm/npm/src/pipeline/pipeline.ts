/// <reference lib="esnext.disposable" preserve="true" />
/** Rows with columns, filled through a gate. */

import type { RequestGate } from "../gate/gate.js";
import type { Key } from "../gate/keys.js";
import type { ColumnSpec, FinishedRowGroup, PipelineSettings } from "../wasm/tidegate.js";
import { callTarget } from "./calls.js";
import type { ClassifyError } from "./outcomes.js";
import type { Report } from "./report.js";
import { type Batch, type ColumnPlan, type Degraded, PipelineRun } from "./run.js";
import { type Cells, type Seeds, seedsOf } from "./rows.js";
import type { Task } from "./task.js";
import type { Signal } from "../platform.js";

export type { TaskCallOptions, TaskRunOptions } from "./calls.js";
export type {
  PipelineEvent,
  PipelineEventFacts,
  PipelineEventHead,
  PipelineEventKind,
  PipelineEventOf,
  Pressure,
  TaskDenial,
  TaskEnd,
} from "./events.js";
export { PIPELINE_EVENT_KINDS } from "./events.js";
export { Drop, Fatal, Retry, Unavailable } from "./outcomes.js";
export type { ClassifyError } from "./outcomes.js";
export type { DiscardReason, DroppedRows, Report } from "./report.js";
export { PipelineRun } from "./run.js";
export type { Batch, Degraded } from "./run.js";
export type {
  AdaptiveRowGroups,
  DropReason,
  FailureKind,
  FinishedRowGroup,
  Hook,
  PipelineSettings,
  Policy,
  Progress,
  RetryKind,
  RowGroupBlock,
  SlotsWhy,
  Stop,
  TaskCounts,
} from "../wasm/tidegate.js";
export type { Task } from "./task.js";

/** What a pipeline works on, and its settings. */
export interface PipelineOptions<Seed extends object> extends Readonly<PipelineSettings> {
  /**
   * The rows: how many, or the seed of each, an object whose values are there from the start. An iterable
   * that is no array is read to its end when the pipeline is made.
   */
  readonly rows: number | Iterable<Seed>;
  /** Makes the seed of a row when its row group is begun, for rows that are given by number. */
  readonly seed?: (row: number) => Seed;
  /** What tasks call through. Any number of pipelines may share one gate, and other callers beside them. */
  readonly gate?: RequestGate;
  /** Says what a thrown error means, before the rules that {@link Pipeline} has for it. */
  readonly classify?: ClassifyError;
  /** Is told when a provider mostly fails, though not for good. */
  readonly onDegraded?: (warning: Degraded) => void;
}

/** How a column is made, whatever its strategy. */
export interface ColumnSettings<Needed extends string> {
  /**
   * The columns that must be there before. The task sees the values of all columns that are there; the types
   * know of these.
   */
  readonly after?: readonly Needed[];
  /**
   * What its tasks call through the pipeline's gate, one call at a time. Its tasks take up no more worker
   * slots than twice the calls that this accepts, and give theirs back while they wait.
   */
  readonly calls?: Key;
  /** Makes the order of its tasks a promise: one at a time, in the order of rows. Default false. */
  readonly ordered?: boolean;
  /** Whether it is skipped where an upstream is. Default false: it runs as if the upstream had been made. */
  readonly skipWithUpstream?: boolean;
  /**
   * Whether its tasks give their worker slot back while they wait for a call. Default: those that call
   * something do.
   */
  readonly yields?: boolean;
  /** What a task holds while it runs, of the pipeline's `resources`. */
  readonly holds?: Readonly<Record<string, number>>;
  /** The fairness group of its tasks; columns that name the same one share it. Default: one of its own. */
  readonly group?: { readonly name: string; readonly weight?: number; readonly limit?: number };
}

/** Makes one row's value. */
export type FillCell<Seen, Value> = (cells: Seen, task: Task) => Value | PromiseLike<Value>;
/** Makes the values of all rows of a row group that are left, in their order. */
export type FillRows<Seen, Value> = (rows: readonly Seen[], task: Task) => readonly Value[] | PromiseLike<readonly Value[]>;
/** Whether there is anything to make. */
export type When<Seen> = (seen: Seen, task: Task) => boolean | PromiseLike<boolean>;

/** A column whose tasks make one row each. */
export interface CellColumn<Seen, Value, Needed extends string> extends ColumnSettings<Needed> {
  readonly strategy?: "cell";
  readonly fill: FillCell<Seen, Value>;
}

/**
 * A column whose tasks make a whole row group each: once its upstreams are there in all rows, or
 * `from_scratch` before all cells.
 */
export interface RowGroupColumn<Seen, Value, Needed extends string> extends ColumnSettings<Needed> {
  readonly strategy: "row_group" | "from_scratch";
  readonly fill: FillRows<Seen, Value>;
}

/** What a task sees of a row. */
export type Seen<Seed, Made, Needed extends keyof Made> = Readonly<Seed & Pick<Made, Needed>>;

/** A column of any strategy, as it is kept. */
type AnyColumn = ColumnSettings<string> & {
  readonly strategy?: "cell" | "row_group" | "from_scratch";
  readonly fill: ColumnPlan["fill"];
  readonly when?: ColumnPlan["when"];
};

/** Saves a row group. */
export type Save<Row> = (rows: Row[], group: FinishedRowGroup) => unknown;

interface Definition {
  readonly fills: readonly string[];
  readonly column: AnyColumn;
}

/**
 * Fills rows column by column, as fast as what it calls lets it be.
 *
 * ```ts
 * import { Pipeline, RequestGate } from "tidegate";
 *
 * const gate = new RequestGate();
 * gate.register("provider/writer", { maxParallel: 16 });
 *
 * const titles: string[] = [];
 * const pipeline = new Pipeline({ gate, rows: [{ topic: "tides" }, { topic: "locks" }] })
 *   .column("title", {
 *     calls: "provider/writer",
 *     // Make the call, and hand `call.signal` on to it.
 *     fill: ({ topic }, task) => task.run(async (call) => `All about ${topic}`),
 *   })
 *   .column("length", { after: ["title"], fill: ({ title }) => title.length })
 *   .save((rows) => {
 *     titles.push(...rows.map(({ title, length }) => `${title} (${length})`));
 *   });
 * const report = await pipeline.run();
 * console.log(report.stop.reason, report.rowsOut, titles[0]); // completed 2 All about tides (15)
 * ```
 *
 * A task makes one column for one row, or for a whole row group. What a `fill` throws is the task's outcome:
 *
 * | thrown | what becomes of it |
 * | --- | --- |
 * | {@link Retry} | the task is tried again, after the pause it names |
 * | {@link Drop} | the row is dropped, with this column and kind as the reason |
 * | {@link Unavailable} | the row is kept for another run; the run does what it can without that provider, and stops |
 * | {@link Fatal} | the run stops |
 * | a `DeniedError` of the gate | the task is tried again; for the reason `unavailable` as {@link Unavailable}; after `shutdown()` of the gate, as after its `free()`, it counts as lost; for a model the gate does not know it is fatal |
 * | what a call of the task threw, alone or as the `cause` of another error | as the gate was told: a connection that failed, an answer that broke off, a time that is over: tried again |
 * | a `TimeoutError`, or an error of a connection | the task is tried again |
 * | a `SyntaxError`, as `JSON.parse` throws it | the answer could not be read: the task is tried again |
 * | an error with a `status` from 400 to 599, as API clients throw it | 429 and other refusals for too many calls: tried again after the pause that its `headers` name; 408, 504 and other 5xx: tried again; a refused key, an empty account: as {@link Unavailable}; other 4xx: the row is dropped |
 * | an `AbortError`, once `task.signal` is aborted | nothing: the task was told to stop |
 * | anything else | the row is dropped, as `other` |
 *
 * The report has the words of the first few. `classify` in the options comes before these rules. Where a task
 * for a whole row group fails for good, all of its rows are dropped.
 *
 * A pipeline may be started any number of times; each run is one of its own. Its settings are checked when it
 * is started.
 */
export class Pipeline<Seed extends object = object, Made extends object = object> {
  readonly #options: PipelineOptions<Seed>;
  readonly #seeds: Seeds;
  readonly #columns: Definition[] = [];
  #save: Save<Cells> | undefined;
  #preBatch: ((rows: readonly Cells[], batch: Batch) => unknown) | undefined;
  #postBatch: Save<Cells> | undefined;

  constructor(options: PipelineOptions<Seed>) {
    this.#options = options;
    this.#seeds = seedsOf(options.rows, options.seed);
  }

  /** Adds a column whose condition may leave rows (or row groups) out: it is `undefined` there. */
  column<Name extends string, Value, Needed extends keyof Made & string = never>(
    name: Name,
    column: CellColumn<Seen<Seed, Made, Needed>, Value, Needed> & { readonly when: When<Seen<Seed, Made, Needed>> },
  ): Pipeline<Seed, Made & Record<Name, Value | undefined>>;
  column<Name extends string, Value, Needed extends keyof Made & string = never>(
    name: Name,
    column: RowGroupColumn<Seen<Seed, Made, Needed>, Value, Needed> & { readonly when: When<readonly Seen<Seed, Made, Needed>[]> },
  ): Pipeline<Seed, Made & Record<Name, Value | undefined>>;
  /** Adds a column. */
  column<Name extends string, Value, Needed extends keyof Made & string = never>(
    name: Name,
    column: CellColumn<Seen<Seed, Made, Needed>, Value, Needed> & { readonly when?: undefined },
  ): Pipeline<Seed, Made & Record<Name, Value>>;
  column<Name extends string, Value, Needed extends keyof Made & string = never>(
    name: Name,
    column: RowGroupColumn<Seen<Seed, Made, Needed>, Value, Needed> & { readonly when?: undefined },
  ): Pipeline<Seed, Made & Record<Name, Value>>;
  column(name: string, column: unknown): Pipeline<Seed, Made> {
    return this.#add([name], column);
  }

  /**
   * Adds several columns that one task fills together, with an object that has them all; the first names the
   * task.
   */
  columns<Values extends object, Needed extends keyof Made & string = never>(
    names: readonly (keyof Values & string)[],
    column: CellColumn<Seen<Seed, Made, Needed>, Values, Needed> & { readonly when?: undefined },
  ): Pipeline<Seed, Made & Values>;
  columns<Values extends object, Needed extends keyof Made & string = never>(
    names: readonly (keyof Values & string)[],
    column: RowGroupColumn<Seen<Seed, Made, Needed>, Values, Needed> & { readonly when?: undefined },
  ): Pipeline<Seed, Made & Values>;
  columns<Values extends object, Needed extends keyof Made & string = never>(
    names: readonly (keyof Values & string)[],
    column: CellColumn<Seen<Seed, Made, Needed>, Values, Needed> & { readonly when: When<Seen<Seed, Made, Needed>> },
  ): Pipeline<Seed, Made & Partial<Values>>;
  columns(names: readonly string[], column: unknown): Pipeline<Seed, Made> {
    if (names.length === 0) throw new RangeError("`columns` needs at least one name");
    return this.#add(names, column);
  }

  /**
   * Says how the rows of a row group are kept that are complete: called once for each row group, in the order
   * in which they are done, also for one of which no row is left. Their values are let go of afterwards. If
   * it throws, the run stops.
   */
  save(save: Save<Seed & Made>): this {
    // At runtime a row has what its columns made.
    this.#save = save as unknown as Save<Cells>;
    return this;
  }

  /**
   * Is called for each row group once its `from_scratch` columns, and those for whole row groups that need no
   * cell, are made; before all others. Returns the rows to leave out, counted from 0 within the row group. If
   * it throws, the run stops.
   */
  preBatch(hook: (rows: readonly Readonly<Seed & Partial<Made>>[], batch: Batch) => Iterable<number> | void | PromiseLike<Iterable<number> | void>): this {
    this.#preBatch = hook as unknown as (rows: readonly Cells[], batch: Batch) => unknown;
    return this;
  }

  /**
   * Is called for each row group before it is saved, and may change its rows. If it throws, the run stops.
   */
  postBatch(hook: Save<Seed & Made>): this {
    this.#postBatch = hook as unknown as Save<Cells>;
    return this;
  }

  /**
   * Checks everything and begins, in the next turn of the event loop.
   *
   * ```ts
   * import { Pipeline } from "tidegate";
   *
   * const run = new Pipeline({ rows: 1_000, seed: (n) => ({ n }) })
   *   .column("square", { fill: ({ n }) => n * n })
   *   .start();
   * run.on("row_group_checkpointed", () => {
   *   if (run.progress().rowsDone >= 500) run.windDown();
   * });
   * const { stop } = await run.report;
   * console.log(stop.reason); // wound_down
   * ```
   *
   * @throws Error, which names the setting or the column that cannot work
   */
  start(options: { readonly signal?: Signal } = {}): PipelineRun {
    const { rows: _rows, seed: _seed, gate, classify, onDegraded, doneRowGroups = [], missingRows = [], ...settings } = this.#options;
    const plan = {
      rows: this.#seeds.count,
      columns: this.#columns.map((definition) => specOf(definition, gate)),
      preBatch: this.#preBatch !== undefined,
      postBatch: this.#postBatch !== undefined,
    };
    const run = {
      core: [plan, { ...settings, doneRowGroups: [...doneRowGroups], missingRows: [...missingRows] }],
      columns: this.#columns.map(planOf),
      gate,
      seeds: this.#seeds,
      rowGroupSize: this.#options.rowGroupSize ?? 64,
      save: this.#save,
      preBatch: this.#preBatch,
      postBatch: this.#postBatch,
      classify,
      degraded: onDegraded,
    } as const;
    return new PipelineRun(run, options.signal);
  }

  /**
   * Starts it, and resolves with the report once the run is over. Aborting `signal` cancels the run, which
   * ends with its report.
   *
   * @throws what {@link start} throws
   */
  run(options: { readonly signal?: Signal } = {}): Promise<Report> {
    return this.start(options).report;
  }

  #add(fills: readonly string[], column: unknown): Pipeline<Seed, Made> {
    // The overloads have checked it, for callers with types.
    this.#columns.push({ fills, column: column as AnyColumn });
    return this;
  }
}

/** A column as the core reads it. */
function specOf({ fills, column }: Definition, gate: RequestGate | undefined): ColumnSpec {
  const { fill, when: _when, after, calls, ...settings } = column;
  const [name = ""] = fills;
  if (typeof fill !== "function") throw new TypeError(`the column \`${name}\` needs a function \`fill\``);
  if (calls !== undefined && gate === undefined) {
    throw new Error(`the column \`${name}\` calls through a gate, and the pipeline has none: give it one as \`gate\``);
  }
  const target = calls !== undefined && gate !== undefined ? { calls: callTarget(gate, calls) } : {};
  return { ...settings, fills: [...fills], after: [...(after ?? [])], ...target };
}

function planOf({ fills, column }: Definition): ColumnPlan {
  const { strategy = "cell", calls, when, fill } = column;
  return { name: fills[0] ?? "", fills, isCell: strategy === "cell", calls, when, fill };
}
