/// <reference lib="esnext.disposable" preserve="true" />

import { FreedError } from "../errors.js";
import type { RequestGate } from "../gate/gate.js";
import type { Call } from "../gate/call.js";
import type { Key } from "../gate/keys.js";
import { dispose, type Permit } from "../gate/permit.js";
import {
  type FinishedRowGroup,
  type PipelinePlan,
  type PipelineRun as Core,
  type PipelineSettings,
  type Progress,
  type SlotsWhy,
  startPipeline,
} from "../wasm/tidegate.js";
import { acquireFor, type TaskCaller, fetchFor, runFor } from "./calls.js";
import { PIPELINE_EVENT_KINDS, type PipelineEventKind, type PipelineEventOf, type PipelineEvent, readEvent } from "./events.js";
import {
  FATAL,
  type ClassifyError,
  dropOf,
  isFailure,
  SUCCESS_CODE,
  messageOf,
  type Outcome,
  outcomeOf,
  SKIPPED,
} from "./outcomes.js";
import type { Report } from "./report.js";
import { type Cells, RowStore, type Seeds } from "./rows.js";
import { RunningTask, type Task, type TaskCallOptions, type TaskRun, type TaskRunOptions } from "./task.js";

/** A column of a run. */
export interface ColumnPlan {
  readonly name: string;
  /** All columns that its tasks fill; the first names the task. */
  readonly fills: readonly string[];
  readonly isCell: boolean;
  readonly calls: Key | undefined;
  readonly when: ((cells: Readonly<Cells> | readonly Readonly<Cells>[], task: Task) => boolean | PromiseLike<boolean>) | undefined;
  readonly fill: (cells: Readonly<Cells> | readonly Readonly<Cells>[], task: Task) => unknown;
}

/** A row group for the pre-batch hook. */
export interface Batch {
  /** Counted from 0 over the whole run. */
  readonly rowGroup: number;
  /** Its first row, counted from 0 over the whole run. */
  readonly firstRow: number;
  /** The number of its rows. */
  readonly rows: number;
}

/** The definition of a run. */
export interface RunPlan {
  readonly columns: readonly ColumnPlan[];
  readonly gate: RequestGate | undefined;
  readonly seeds: Seeds;
  readonly rowGroupSize: number;
  readonly save: ((rows: Cells[], group: FinishedRowGroup) => unknown) | undefined;
  readonly preBatch: ((rows: readonly Cells[], batch: Batch) => unknown) | undefined;
  readonly postBatch: ((rows: Cells[], group: FinishedRowGroup) => unknown) | undefined;
  readonly classify: ClassifyError | undefined;
  readonly degraded: ((warning: Degraded) => void) | undefined;
  /** The plan and the settings for the core. */
  readonly core: readonly [plan: PipelinePlan, settings: PipelineSettings];
}

/** A provider for which most calls fail in ways that can pass. */
export interface Degraded {
  /** The fairness group of its tasks. */
  readonly group: string;
  /** How many of its last responses were retryable failures. */
  readonly retryable: number;
  /** The number of responses considered. */
  readonly window: number;
}

/** How many distinct messages are kept for a column and a reason. */
const KEPT_MESSAGES = 5;

interface Subscription {
  readonly kinds: ReadonlySet<PipelineEventKind>;
  readonly listener: (event: PipelineEvent) => void;
  hasThrown: boolean;
}

/** A run of a {@link Pipeline}. It continues if this handle is dropped. */
export class PipelineRun {
  /** Resolves with the report once the run is over. Never rejects. */
  readonly report: Promise<Report>;
  readonly #core: Core;
  readonly #plan: RunPlan;
  readonly #names: readonly string[];
  readonly #store: RowStore;
  readonly #tasks = new Map<number, RunningTask>();
  readonly #messages = new Map<string, string[]>();
  #subscriptions: readonly Subscription[] = [];
  #over: Report | undefined;
  #isFreed = false;

  /** @internal */
  constructor(plan: RunPlan, signal: AbortSignal | undefined) {
    this.#plan = plan;
    this.#names = plan.columns.map((column) => column.name);
    this.#store = new RowStore(plan.seeds);
    let over: (report: Report) => void = () => {};
    this.report = new Promise((resolve) => {
      over = resolve;
    });
    const cancel = (): void => this.cancel();
    const taskRun: TaskRun = {
      acquire: async (task, options) => this.#acquire(task, options),
      run: async (task, call, options) => this.#call(task, call, options),
      fetch: async (task, input, init, options) => this.#fetch(task, input, init, options),
    };
    const callbacks = {
      begin: (slot: number, generation: number, column: number, rowGroup: number, firstRow: number, rows: number, row: number, attempt: number) => {
        const plan = this.#plan.columns[column];
        if (plan === undefined) return;
        const task = new RunningTask(taskRun, slot, generation, column, plan.name, rowGroup, firstRow, rows, row, attempt);
        this.#tasks.set(slot, task);
        void this.#runTask(plan, task);
      },
      stop: (slot: number, generation: number) => {
        const task = this.#tasks.get(slot);
        if (task?.generation !== generation) return;
        this.#tasks.delete(slot);
        task.stop();
      },
      step: (step: number, group: FinishedRowGroup) => {
        void this.#step(step, group);
      },
      warn: (group: string, retryable: number, window: number) => {
        reportErrors(() => this.#plan.degraded?.({ group, retryable, window }));
      },
      event: (event: unknown) => this.#emit(event),
      over: () => {
        signal?.removeEventListener("abort", cancel);
        this.#over = this.#readReport();
        this.#store.clear();
        over(this.#over);
      },
    };
    const { gate } = plan;
    this.#core = gate === undefined ? startPipeline(...plan.core, callbacks) : gate.core.startPipeline(...plan.core, callbacks);
    if (signal?.aborted === true) this.cancel();
    else signal?.addEventListener("abort", cancel, { once: true });
  }

  /**
   * Cancels the run: starts nothing more, aborts running tasks, and keeps the row groups that are complete.
   */
  cancel(): void {
    if (!this.#isFreed) this.#core.cancel();
  }

  /**
   * Drains the run: calls in flight finish, and none starts. Incomplete row groups are saved in part. The run
   * can still be cancelled.
   */
  drain(): void {
    if (!this.#isFreed) this.#core.drain();
  }

  /**
   * Winds the run down: starts no further row group, and finishes and saves the active ones. The run can
   * still be cancelled.
   */
  windDown(): void {
    if (!this.#isFreed) this.#core.windDown();
  }

  /** Returns the progress of the run. Cost: proportional to the active row groups and the columns. */
  progress(): Progress {
    this.#throwIfFreed();
    return this.#core.progress();
  }

  /** Returns why slots of each task resource are idle. */
  why(): readonly SlotsWhy[];
  /**
   * Returns why a task does not run, in words; `null` if it runs, is complete or was dropped. `row` counts
   * over the whole run.
   */
  why(task: { readonly column: string; readonly row: number }): string | null;
  why(task?: { readonly column: string; readonly row: number }): readonly SlotsWhy[] | string | null {
    this.#throwIfFreed();
    if (task !== undefined) {
      const column = this.#plan.columns.find((column) => column.fills.includes(task.column));
      if (column === undefined) throw new RangeError(`there is no column \`${task.column}\`; there are ${this.#names.join(", ")}`);
      const size = this.#plan.rowGroupSize;
      return this.#core.whyWaiting(task.column, Math.floor(task.row / size), column.isCell ? task.row % size : -1) ?? null;
    }
    return this.#core.whySlots();
  }

  /** Calls `listener` with each later event of one kind. Returns a function that ends the subscription. */
  on<Kind extends PipelineEventKind>(kind: Kind, listener: (event: PipelineEventOf<Kind>) => void): () => void {
    // The listener receives events of that kind only.
    return this.#subscribe([kind], listener as (event: PipelineEvent) => void);
  }

  /**
   * Calls `listener` with each later event of these kinds, or of all. Returns a function that ends the
   * subscription. Only kinds with a listener are recorded. A listener is called outside of scheduling
   * decisions and may use any method. The first error that it throws is logged on the console. To receive all
   * events, subscribe in the same synchronous block as the start of the run.
   */
  subscribe(listener: (event: PipelineEvent) => void, options: { readonly kinds?: Iterable<PipelineEventKind> } = {}): () => void {
    return this.#subscribe(options.kinds ?? PIPELINE_EVENT_KINDS, listener);
  }

  /** Cancels the run if it is not over, and releases its memory in the module. Its report still resolves. */
  free(): void {
    if (this.#isFreed) return;
    this.#core.cancel();
    this.#isFreed = true;
    void this.report.then(() => this.#core.free());
  }

  /** The same as {@link free}. */
  [dispose](): void {
    this.free();
  }

  #throwIfFreed(): void {
    if (this.#isFreed) throw new FreedError("run");
  }

  #subscribe(kinds: Iterable<PipelineEventKind>, listener: (event: PipelineEvent) => void): () => void {
    this.#throwIfFreed();
    const subscription: Subscription = { kinds: new Set(kinds), listener, hasThrown: false };
    this.#listen([...this.#subscriptions, subscription]);
    return () => this.#listen(this.#subscriptions.filter((other) => other !== subscription));
  }

  #listen(subscriptions: readonly Subscription[]): void {
    if (!this.#isFreed) this.#core.listen([...new Set(subscriptions.flatMap(({ kinds }) => [...kinds]))]);
    this.#subscriptions = subscriptions;
  }

  #emit(raw: unknown): void {
    const event = readEvent(raw, this.#names);
    for (const subscription of this.#subscriptions) {
      if (!subscription.kinds.has(event.kind)) continue;
      try {
        subscription.listener(event);
      } catch (error) {
        if (!subscription.hasThrown) console.error("tidegate: a listener threw; it still receives events", error);
        subscription.hasThrown = true;
      }
    }
  }

  /** Runs one task and reports its outcome. Never rejects. */
  async #runTask(plan: ColumnPlan, task: RunningTask): Promise<void> {
    // The caller's code runs in a microtask, never inside a call of the module.
    await null;
    try {
      if (task.isStopped) return;
      const rows = this.#store.open(task.rowGroup, task.firstRow, task.groupRows);
      const isMade = plan.isCell ? await this.#fillCell(plan, task, rows) : await this.#fillRows(plan, task, rows);
      this.#finish(task, isMade ? SUCCESS_CODE : SKIPPED);
    } catch (error) {
      this.#taskFailed(task, error);
    }
  }

  async #fillCell(plan: ColumnPlan, task: RunningTask, rows: readonly Cells[]): Promise<boolean> {
    const cells = rows[task.rowInGroup];
    if (cells === undefined) throw new Error("this row is not in its row group");
    if (plan.when !== undefined && !(await plan.when(cells, task))) return false;
    const made = await plan.fill(cells, task);
    if (!task.isStopped) keep(plan, cells, made);
    return true;
  }

  async #fillRows(plan: ColumnPlan, task: RunningTask, rows: readonly Cells[]): Promise<boolean> {
    const alive = pick(rows, this.#core.liveRows(task.rowGroup));
    if (plan.when !== undefined && !(await plan.when(alive, task))) return false;
    const made = await plan.fill(alive, task);
    if (!Array.isArray(made) || made.length !== alive.length) {
      const what = Array.isArray(made) ? `${made.length} values` : "no array";
      throw new Error(`the column \`${plan.name}\` must be filled with an array of ${alive.length} values, one for each row it was given, not with ${what}`);
    }
    if (!task.isStopped) alive.forEach((cells, index) => keep(plan, cells, (made as readonly unknown[])[index]));
    return true;
  }

  #taskFailed(task: RunningTask, error: unknown): void {
    if (task.isStopped) return;
    const { code, afterMs, status, message } = this.#outcomeOf(error, task);
    if (isFailure(code)) this.#keepMessage(keyOf({ column: task.column, ...dropOf(code) }), message);
    if (code === FATAL) {
      this.#forget(task);
      this.#core.panicked(task.slot, task.generation, message);
    } else {
      this.#finish(task, code, afterMs, status);
    }
  }

  #outcomeOf(error: unknown, task: RunningTask): Outcome {
    try {
      return outcomeOf(error, task, this.#plan.classify);
    } catch (failure) {
      return { code: FATAL, afterMs: NaN, status: 0, message: `an error without a readable message: ${messageOf(failure)}` };
    }
  }

  #finish(task: RunningTask, code: number, afterMs = NaN, status = 0): void {
    this.#forget(task);
    // The core does not wait for the outcome of a stopped task, and the handle may be freed.
    if (!task.isStopped) this.#core.finish(task.slot, task.generation, code, afterMs, status);
  }

  #forget(task: RunningTask): void {
    if (this.#tasks.get(task.slot) === task) this.#tasks.delete(task.slot);
  }

  #keepMessage(key: string, message: string): void {
    const kept = this.#messages.get(key) ?? [];
    if (kept.length < KEPT_MESSAGES && !kept.includes(message)) this.#messages.set(key, [...kept, message]);
  }

  #acquire(task: RunningTask, options: TaskCallOptions): Promise<Permit> {
    return acquireFor(this.#callerOf(task, options), options);
  }

  #call<Answer>(task: RunningTask, call: (call: Call) => Answer | PromiseLike<Answer>, options: TaskRunOptions<Answer>): Promise<Answer> {
    return runFor(this.#callerOf(task, options), call, options);
  }

  #fetch(task: RunningTask, input: RequestInfo | URL, init: RequestInit, options: TaskRunOptions<Response>): Promise<Response> {
    return fetchFor(this.#callerOf(task, options), input, init, options);
  }

  /** Returns the gate, key and signal of a task's call. */
  #callerOf(task: RunningTask, options: TaskCallOptions): TaskCaller {
    const { gate } = this.#plan;
    const key = options.key ?? this.#plan.columns[task.columnIndex]?.calls;
    if (gate === undefined) throw new Error(`the column \`${task.column}\` calls through a gate, but the pipeline has none: pass one as \`gate\``);
    if (key === undefined) throw new Error(`the column \`${task.column}\` has no \`calls\``);
    // A stopped task has an aborted signal, so its request is rejected before this is called.
    return { gate, key, signal: task.signal, passYieldToken: () => this.#core.passYieldToken(task.slot, task.generation) };
  }

  /** Runs a hook or a checkpoint and reports its end. Never rejects. */
  async #step(step: number, group: FinishedRowGroup): Promise<void> {
    await null;
    const all = this.#store.open(group.rowGroup, group.firstRow, group.rows);
    let leftOut: readonly number[] = [];
    let failure: string | undefined;
    try {
      if (step === 0) {
        const { rowGroup, firstRow, rows } = group;
        leftOut = rowNumbers(await this.#plan.preBatch?.(all, { rowGroup, firstRow, rows }), rows);
      } else {
        const rows = pick(all, group.live);
        await (step === 1 ? this.#plan.postBatch?.(rows, group) : this.#plan.save?.(rows, group));
      }
    } catch (error) {
      failure = messageOf(error);
    }
    if (step === 2 || (step === 1 && failure !== undefined)) this.#store.close(group.rowGroup);
    this.#core.stepEnded(step, group.rowGroup, Uint32Array.from(leftOut), failure);
  }

  #readReport(): Report {
    const report = this.#core.report();
    if (report === undefined) throw new Error("the run is over but has no report");
    return { ...report, dropped: report.dropped.map((dropped) => ({ ...dropped, messages: this.#messages.get(keyOf(dropped)) ?? [] })) };
  }
}

/** Returns the key under which messages of dropped rows are stored. */
function keyOf({ column, reason, kind }: { readonly column: string; readonly reason: string; readonly kind?: string | undefined }): string {
  return JSON.stringify([column, reason, kind]);
}

function pick(rows: readonly Cells[], chosen: Iterable<number>): Cells[] {
  return Array.from(chosen, (row) => rows[row]).filter((cells) => cells !== undefined);
}

function keep(plan: ColumnPlan, cells: Cells, made: unknown): void {
  if (plan.fills.length === 1) {
    cells[plan.name] = made;
    return;
  }
  if (typeof made !== "object" || made === null) {
    throw new Error(`the columns ${plan.fills.join(", ")} must be filled with an object that has them, not with ${String(made)}`);
  }
  const missing = plan.fills.find((name) => !(name in made));
  if (missing !== undefined) throw new Error(`the columns ${plan.fills.join(", ")} must be filled together, and \`${missing}\` is missing`);
  for (const name of plan.fills) cells[name] = (made as Cells)[name];
}

/** Checks the result of a pre-batch hook: the rows to leave out. */
function rowNumbers(given: unknown, rows: number): readonly number[] {
  if (given === undefined || given === null) return [];
  if (typeof given !== "object" || !(Symbol.iterator in given)) throw new Error("the pre-batch hook must return the rows to leave out, or nothing");
  const list = [...(given as Iterable<unknown>)];
  const wrong = list.find((row) => typeof row !== "number" || !Number.isInteger(row) || row < 0 || row >= rows);
  if (wrong !== undefined) throw new Error(`the pre-batch hook left out row ${String(wrong)}; rows count from 0 to ${rows - 1} within the row group`);
  return list as readonly number[];
}

function reportErrors(call: () => void): void {
  try {
    call();
  } catch (error) {
    console.error("tidegate: a callback threw", error);
  }
}
