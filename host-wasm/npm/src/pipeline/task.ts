import type { Call } from "../gate/call.js";
import type { Key } from "../gate/keys.js";
import type { AcquireOptions, RunOptions } from "../gate/options.js";
import type { Permit } from "../gate/permit.js";
import type { FetchInit, FetchInput, FetchResponse, Signal } from "../platform.js";

/** One task, as its column's `fill` receives it. */
export interface Task {
  /** The column that it fills. */
  readonly column: string;
  /** The row, counted from 0 over the whole run; the first row, for a task that fills a whole row group. */
  readonly row: number;
  /** The number of rows that it fills: 1, or all of its row group. */
  readonly rows: number;
  /** The row group, counted from 0 over the whole run. */
  readonly rowGroup: number;
  /** 1 for the first attempt. */
  readonly attempt: number;
  /** Aborted when the task must stop. Its result is ignored then. Pass it to `fetch`. */
  readonly signal: Signal;
  /**
   * Resolves with a permit for one call to the column's `calls`, in the order of tasks. Finish it with the
   * outcome of the call. The task releases its worker slot while it waits. Rejects with a `DeniedError`;
   * thrown from `fill`, that causes a retry of the task.
   */
  acquire(options?: TaskCallOptions): Promise<Permit>;
  /**
   * Makes one call as {@link RequestGate.run} does, in the order of tasks, and resolves with the result of
   * `call`. If the call failed, by the status of a `Response` or by `classify`, it rejects with a {@link
   * Retry}, a {@link Drop} or an {@link Unavailable}, to be rethrown or handled, and cancels the body. A call
   * that fails in an outage is made again once the provider is back; `call` then runs again.
   */
  run<Answer>(call: (call: Call) => Answer | PromiseLike<Answer>, options?: TaskRunOptions<Answer>): Promise<Answer>;
  /**
   * Fetches as {@link RequestGate.fetch} does, in the order of tasks. An error response rejects with a {@link
   * Retry}, a {@link Drop} or an {@link Unavailable} by its status and body, and its body is cancelled. A
   * fetch that fails in an outage is sent again once the provider is back, unless the request body in `init`
   * is a stream. So the whole body has arrived when the promise resolves, and a `Request` keeps its own body
   * until then. To read a long response in chunks, use `fetch` in {@link run}.
   */
  fetch(input: FetchInput, init?: FetchInit, options?: TaskRunOptions<FetchResponse>): Promise<FetchResponse>;
}

/** Options of {@link Task.acquire}. */
export interface TaskCallOptions extends Omit<AcquireOptions, "signal"> {
  /** The resource to call. Default: the column's `calls`. */
  readonly key?: Key;
}

/** Options of {@link Task.run} and {@link Task.fetch}. */
export interface TaskRunOptions<T> extends TaskCallOptions, Pick<RunOptions<T>, "callTimeoutMs" | "classify"> {}

/** The methods of a run that its tasks call. */
export interface TaskRun {
  acquire(task: RunningTask, options: TaskCallOptions): Promise<Permit>;
  run<Answer>(task: RunningTask, call: (call: Call) => Answer | PromiseLike<Answer>, options: TaskRunOptions<Answer>): Promise<Answer>;
  fetch(task: RunningTask, input: FetchInput, init: FetchInit, options: TaskRunOptions<FetchResponse>): Promise<FetchResponse>;
}

/** A running task. */
export class RunningTask implements Task {
  readonly #run: TaskRun;
  #controller: AbortController | undefined;
  #isStopped = false;

  constructor(
    run: TaskRun,
    readonly slot: number,
    readonly generation: number,
    readonly columnIndex: number,
    readonly column: string,
    readonly rowGroup: number,
    readonly firstRow: number,
    readonly groupRows: number,
    /** Counted from 0 within the row group; below 0 for the whole row group. */
    readonly rowInGroup: number,
    readonly attempt: number,
  ) {
    this.#run = run;
  }

  get row(): number {
    return this.firstRow + Math.max(this.rowInGroup, 0);
  }

  get rows(): number {
    return this.rowInGroup < 0 ? this.groupRows : 1;
  }

  get isStopped(): boolean {
    return this.#isStopped;
  }

  // Most tasks do not use it, and a controller costs more than the rest of the task.
  get signal(): Signal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#isStopped) this.#controller.abort();
    }
    return this.#controller.signal;
  }

  stop(): void {
    this.#isStopped = true;
    this.#controller?.abort();
  }

  acquire(options: TaskCallOptions = {}): Promise<Permit> {
    return this.#run.acquire(this, options);
  }

  async run<Answer>(call: (call: Call) => Answer | PromiseLike<Answer>, options: TaskRunOptions<Answer> = {}): Promise<Answer> {
    return await this.#run.run(this, call, options);
  }

  async fetch(input: FetchInput, init: FetchInit = {}, options: TaskRunOptions<FetchResponse> = {}): Promise<FetchResponse> {
    return await this.#run.fetch(this, input, init, options);
  }
}
