import type { Call } from "../gate/call.js";
import type { Permit } from "../gate/permit.js";
import type { TaskCallOptions, TaskRunOptions } from "./calls.js";
import type { FetchInit, FetchInput, FetchResponse, Signal } from "../platform.js";

/** One task, as its column's `fill` sees it. */
export interface Task {
  /** The column that it makes. */
  readonly column: string;
  /** The run's number of its row, from 0; of the first row, for a task that makes a whole row group. */
  readonly row: number;
  /** How many rows it makes: 1, or all of its row group. */
  readonly rows: number;
  /** The row group, counted from 0 over the whole run. */
  readonly rowGroup: number;
  /** 1 for the first try. */
  readonly attempt: number;
  /** Aborted when the task is to stop: nobody waits for its end then. Pass it on to `fetch`. */
  readonly signal: Signal;
  /**
   * A permit for one call to what the column `calls`, as soon as it is this task's turn; finish it with what
   * became of the call. While the task waits it gives its worker slot to others. Rejects with a
   * `DeniedError`; thrown on, that means that the task is tried again.
   */
  acquire(options?: TaskCallOptions): Promise<Permit>;
  /**
   * Makes one call as {@link RequestGate.run} does, as soon as it is this task's turn, and resolves with what
   * `call` does. Where that is a failure, a `Response` that is not ok or what `classify` says is none, it
   * rejects with a {@link Retry}, a {@link Drop} or an {@link Unavailable}, to throw on or to handle, and
   * lets go of the body. A call that fails in an outage is made again once the provider is back: `call` is
   * then called once more.
   */
  run<Answer>(call: (call: Call) => Answer | PromiseLike<Answer>, options?: TaskRunOptions<Answer>): Promise<Answer>;
  /**
   * Fetches as {@link RequestGate.fetch} does, as soon as it is this task's turn. An answer that is not ok
   * rejects with a {@link Retry}, a {@link Drop} or an {@link Unavailable} by its status and body, which is
   * let go of. What fails in an outage is fetched again once the provider is back, unless the body of the
   * request is a stream in `init`. So the body of an answer has come as a whole before it is handed out, and
   * a `Request` keeps its own until then; to read a long answer piece by piece, `fetch` in {@link run}.
   */
  fetch(input: FetchInput, init?: FetchInit, options?: TaskRunOptions<FetchResponse>): Promise<FetchResponse>;
}

/** What a task needs of its run. */
export interface TaskRun {
  acquire(task: RunningTask, options: TaskCallOptions): Promise<Permit>;
  run<Answer>(task: RunningTask, call: (call: Call) => Answer | PromiseLike<Answer>, options: TaskRunOptions<Answer>): Promise<Answer>;
  fetch(task: RunningTask, input: FetchInput, init: FetchInit, options: TaskRunOptions<FetchResponse>): Promise<FetchResponse>;
}

/** A task under way. */
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
    /** Within the row group; below 0: the whole of it. */
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

  // Most tasks never look at it, and a controller costs more than the rest of the task.
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
