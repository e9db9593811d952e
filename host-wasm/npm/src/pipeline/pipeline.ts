/// <reference lib="esnext.disposable" preserve="true" />
/** Pipelines: rows whose columns are filled by calls through a gate. */

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

export type {
  PipelineEvent,
  PipelineEventFacts,
  PipelineEventHead,
  PipelineEventKind,
  PipelineEventOf,
  TaskEnd,
} from "./events.js";
export { PIPELINE_EVENT_KINDS } from "./events.js";
export { Drop, Fatal, Retry, Unavailable } from "./outcomes.js";
export type { ClassifyError } from "./outcomes.js";
export type { DroppedRows, Report } from "./report.js";
export { PipelineRun } from "./run.js";
export type { Batch, Degraded } from "./run.js";
export type {
  AdaptiveRowGroups,
  DiscardReason,
  DropReason,
  FailureKind,
  FinishedRowGroup,
  Hook,
  PipelineSettings,
  Policy,
  Pressure,
  Progress,
  RetryKind,
  RowGroupBlock,
  SlotsWhy,
  Stop,
  TaskCounts,
  TaskDenial,
} from "../wasm/tidegate.js";
export type { Task, TaskCallOptions, TaskRunOptions } from "./task.js";

/** The rows of a pipeline, and its settings. */
export interface PipelineOptions<Seed extends object> extends Readonly<PipelineSettings> {
  /**
   * The rows: their number, or a seed for each, an object with its initial values. An iterable other than an
   * array is read to its end when the pipeline is constructed.
   */
  readonly rows: number | Iterable<Seed>;
  /** Creates the seed of a row when its row group starts. Only if `rows` is a number. */
  readonly seed?: (row: number) => Seed;
  /** The gate for calls of tasks. Pipelines and other callers can share one gate. */
  readonly gate?: RequestGate;
  /** Classifies a thrown error before the rules of {@link Pipeline} apply. */
  readonly classify?: ClassifyError;
  /** Called when most calls to a provider fail in ways that can pass. */
  readonly onDegraded?: (warning: Degraded) => void;
}

/** Settings of a column of any strategy. */
export interface ColumnSettings<Needed extends string> {
  /**
   * The columns that must be complete first. At runtime the task sees all complete columns; its types have
   * only these.
   */
  readonly after?: readonly Needed[];
  /**
   * The resource that its tasks call through the pipeline's gate, one call at a time. Its tasks occupy at
   * most twice as many worker slots as the resource accepts calls, and release their slots while they wait.
   */
  readonly calls?: Key;
  /** Whether its tasks run one at a time, in the order of rows. Default: false. */
  readonly ordered?: boolean;
  /**
   * Whether a task is skipped if an upstream was skipped. Default: false, it runs as if the upstream were
   * complete.
   */
  readonly skipWithUpstream?: boolean;
  /**
   * Whether its tasks release their worker slot while they wait for a call. Default: true if the column has
   * `calls`.
   */
  readonly yields?: boolean;
  /** The amounts of the pipeline's `resources` that a task holds while it runs. */
  readonly holds?: Readonly<Record<string, number>>;
  /**
   * The fairness group of its tasks. Columns with the same group name share it. Default: a group of its own.
   */
  readonly group?: { readonly name: string; readonly weight?: number; readonly limit?: number };
}

/** Computes the value of one row. */
export type FillCell<Seen, Value> = (cells: Seen, task: Task) => Value | PromiseLike<Value>;
/** Computes the values of all remaining rows of a row group, in their order. */
export type FillRows<Seen, Value> = (rows: readonly Seen[], task: Task) => readonly Value[] | PromiseLike<readonly Value[]>;
/** Returns whether the task runs; otherwise it is skipped. */
export type When<Seen> = (seen: Seen, task: Task) => boolean | PromiseLike<boolean>;

/** A column whose tasks fill one row each. */
export interface CellColumn<Seen, Value, Needed extends string> extends ColumnSettings<Needed> {
  readonly strategy?: "cell";
  readonly fill: FillCell<Seen, Value>;
}

/**
 * A column whose tasks fill a whole row group each: `row_group` once its upstreams are complete in all rows,
 * `from_scratch` before all cells.
 */
export interface RowGroupColumn<Seen, Value, Needed extends string> extends ColumnSettings<Needed> {
  readonly strategy: "row_group" | "from_scratch";
  readonly fill: FillRows<Seen, Value>;
}

/** The values of a row that a task sees. */
export type Seen<Seed, Made, Needed extends keyof Made> = Readonly<Seed & Pick<Made, Needed>>;

/** A column of any strategy. */
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
 * Fills rows column by column, as fast as the called services allow.
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
 *     // Make the call, and pass `call.signal` to it.
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
 * A task fills one column of one row, or of a whole row group. An error that `fill` throws determines the
 * outcome of the task:
 *
 * | thrown | outcome |
 * | --- | --- |
 * | {@link Retry} | the task is retried after the pause that it states |
 * | {@link Drop} | the row is dropped with this column and kind as the reason |
 * | {@link Unavailable} | the row is kept for another run; the run completes what it can without that provider, and stops |
 * | {@link Fatal} | the run stops |
 * | a `DeniedError` of the gate | the task is retried; as {@link Unavailable} for the reason `unavailable`; cancelled after `shutdown()` or `free()` of the gate; fatal for an unregistered key |
 * | an error of a call of the task, itself or as the `cause` of another error | as the gate classified it: after a failed connection, a broken response or a timeout the task is retried |
 * | a `TimeoutError`, or an error of a connection | the task is retried |
 * | a `SyntaxError`, as `JSON.parse` throws it | the response is malformed: the task is retried |
 * | an error with a `status` from 400 to 599, as API clients throw it | 429 and other rate limits: retried after the pause that its `headers` state; 408, 504 and other 5xx: retried; a rejected key or an exhausted account: as {@link Unavailable}; other 4xx: the row is dropped |
 * | an `AbortError`, once `task.signal` is aborted | the task is cancelled |
 * | anything else | the row is dropped, as `other` |
 *
 * The report has the first few messages. The option `classify` comes before these rules. If a task for a
 * whole row group fails for good, all its rows are dropped.
 *
 * A pipeline can be started any number of times, and its runs are independent. Its settings are checked at
 * each start.
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

  /**
   * Adds a column with a condition. The column is `undefined` in rows or row groups where the condition is
   * false.
   */
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
   * Adds several columns that one task fills together with an object of all their values. The first name is
   * the name of the task.
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
   * Sets the function that saves the complete rows of a row group. It is called once for each row group, in
   * order of completion, also for one without remaining rows. The values are released afterwards. If it
   * throws, the run stops.
   */
  save(save: Save<Seed & Made>): this {
    // At runtime a row has the values of its columns.
    this.#save = save as unknown as Save<Cells>;
    return this;
  }

  /**
   * Sets a hook that is called for each row group once its `from_scratch` columns, and its columns for whole
   * row groups that need no cell, are complete; before all other columns. It returns the rows to leave out,
   * counted from 0 within the row group. If it throws, the run stops.
   */
  preBatch(hook: (rows: readonly Readonly<Seed & Partial<Made>>[], batch: Batch) => Iterable<number> | void | PromiseLike<Iterable<number> | void>): this {
    this.#preBatch = hook as unknown as (rows: readonly Cells[], batch: Batch) => unknown;
    return this;
  }

  /**
   * Sets a hook that is called for each row group before it is saved, and may change its rows. If it throws,
   * the run stops.
   */
  postBatch(hook: Save<Seed & Made>): this {
    this.#postBatch = hook as unknown as Save<Cells>;
    return this;
  }

  /**
   * Checks the pipeline and starts a run in the next turn of the event loop.
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
   * @throws Error that names the invalid setting or column
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
   * Starts a run, and resolves with the report once it is over. Aborting `signal` cancels the run, which
   * still resolves with its report.
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

/** Converts a column to the core's form. */
function specOf({ fills, column }: Definition, gate: RequestGate | undefined): ColumnSpec {
  const { fill, when: _when, after, calls, ...settings } = column;
  const [name = ""] = fills;
  if (typeof fill !== "function") throw new TypeError(`the column \`${name}\` needs a function \`fill\``);
  if (calls !== undefined && gate === undefined) {
    throw new Error(`the column \`${name}\` calls through a gate, but the pipeline has none: pass one as \`gate\``);
  }
  const target = calls !== undefined && gate !== undefined ? { calls: callTarget(gate, calls) } : {};
  return { ...settings, fills: [...fills], after: [...(after ?? [])], ...target };
}

function planOf({ fills, column }: Definition): ColumnPlan {
  const { strategy = "cell", calls, when, fill } = column;
  return { name: fills[0] ?? "", fills, isCell: strategy === "cell", calls, when, fill };
}
