// The page's end of the worker: it calls the scheduler and takes its pictures. Late ones, of runs that have
// been replaced, are dropped here.
import * as Comlink from "comlink";
import type { Frame } from "./messages.ts";
import type { LoadQuestion, Scheduler } from "./worker.ts";

export interface RunnerEvents {
  /** At most once per frame of the display. */
  frame: (frame: Frame) => void;
  /** A long seek goes on, or has ended. */
  seeking: (share: number | undefined) => void;
  /** The runs cannot go on. */
  failed: (message: string) => void;
}

export class Runner {
  #events;
  #worker: Comlink.Remote<Scheduler> | undefined;
  /**
   * The runs that the worker has: the last ones whose load it answered. A refused load leaves them as they
   * are.
   */
  #run = 0;
  #lastNumber = 0;
  /** The load under way. */
  #loading: Promise<unknown> = Promise.resolve();
  /** Rejects once the worker has failed: no answer comes any more. */
  #failure: Promise<never>;
  #fail: (error: Error) => void = () => {};

  constructor(events: RunnerEvents) {
    this.#events = events;
    this.#failure = new Promise((_, reject) => (this.#fail = reject));
    this.#failure.catch((error: Error) => events.failed(error.message));
  }

  /** Starts the worker. Resolves once it is ready. */
  begin() {
    const worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module", name: "scheduler" });
    worker.onerror = (event) => {
      event.preventDefault();
      this.#fail(new Error(`the scheduler's worker failed: ${event.message || "it could not be started"}`));
    };
    this.#worker = Comlink.wrap<Scheduler>(worker);
    const listener = {
      frame: (frame: Frame) => this.#draw(frame),
      seeking: (run: number, share: number | undefined) => {
        if (run === this.#run) this.#events.seeking(share);
      },
      failed: (message: string) => this.#fail(new Error(message)),
    };
    const ready = this.ask((worker) => worker.begin(Comlink.proxy(listener)));
    ready.catch((error: Error) => this.#fail(error));
    return ready;
  }

  /** Calls the scheduler and waits for nothing. */
  send(call: (worker: Comlink.Remote<Scheduler>) => Promise<void>) {
    if (this.#worker) call(this.#worker).catch((error: unknown) => reportError(error));
  }

  /**
   * Returns what the scheduler answers to a call about the present runs. Rejects with what the core says when
   * it refuses.
   */
  ask<T>(call: (worker: Comlink.Remote<Scheduler>, run: number) => Promise<T>): Promise<T> {
    if (!this.#worker) return Promise.reject(new Error("the scheduler has not been started"));
    return Promise.race([call(this.#worker, this.#run), this.#failure]);
  }

  /** Prepares other runs. Pictures of the old ones are not shown any more once the new ones are there. */
  async load(question: LoadQuestion) {
    this.#lastNumber += 1;
    const run = this.#lastNumber;
    const answer = this.ask((worker) => worker.load(run, question));
    const loading = answer.then(() => {
      this.#run = run;
    });
    this.#loading = loading.catch(() => {});
    await loading;
    return answer;
  }

  async #draw(frame: Frame) {
    // Pictures pass through another channel than answers and may come before that of the load.
    if (frame.run > this.#run) await this.#loading;
    await new Promise(requestAnimationFrame);
    try {
      if (frame.run === this.#run) this.#events.frame(frame);
    } catch (error) {
      reportError(error);
    }
    const buffers = frame.sides.flatMap(({ telemetry, lanes }) => [telemetry, lanes]);
    return Comlink.transfer(buffers, buffers);
  }
}
