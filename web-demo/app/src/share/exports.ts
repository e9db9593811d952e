// Exports of a run, made by running it anew beside the one that is shown: a slice at a time, in chunks of
// text.
import { messageOf } from "../errors.ts";
import { files } from "./files.ts";
import type { Exporter } from "../pkg/tidegate_files.js";
import type { Playground } from "../pkg/tidegate_playground.js";

/** Between two looks at the clock. */
const EVENTS_PER_CALL = 256;
/** Text is sent on when there is so much of it, in UTF-16 units. */
const CHUNK = 1 << 18;

/** Takes a part of the text, and the share of the run that it reaches to, 0 to 1. */
export type Chunk = (text: string, share: number) => Promise<void>;

interface Job {
  exporter: Exporter;
  chunk: Chunk;
  /** What has been sent and is not taken yet. */
  sent: Promise<void>[];
  /** Not sent yet. */
  text: string;
  resolve: () => void;
  reject: (error: Error) => void;
}

export class Exports {
  #plan;
  /** Grows when the runs are replaced: an export that was still being prepared is given up. */
  #era = 0;
  /** The oldest first. */
  #jobs: Job[] = [];

  /** @param plan asks for a turn */
  constructor(plan: () => void) {
    this.#plan = plan;
  }

  /**
   * Resolves once `chunk` has taken all of the text: of the run to its end if `whole`, else to the present
   * instant.
   */
  async add(what: "trace" | "decisions", whole: boolean, chunk: Chunk, run: Playground): Promise<void> {
    const era = this.#era;
    const [scenario, seed, until] = [run.scenario(), run.seed(), whole || run.isFinished() ? undefined : run.now()];
    const { Exporter } = await files();
    if (era !== this.#era) throw new Error("the run has been replaced");
    const exporter = new Exporter(what, scenario, seed, until);
    const sent: Promise<void>[] = [];
    await new Promise<void>((resolve, reject) => {
      this.#jobs.push({ exporter, chunk, sent, text: "", resolve, reject });
      this.#plan();
    });
    // The text passes through another channel than the answer, which must not overtake it.
    await Promise.all(sent);
  }

  /** Gives all of them up: the runs are others now. */
  clear() {
    this.#era += 1;
    for (const job of this.#jobs) job.reject(new Error("the run has been replaced"));
    for (const { exporter } of this.#jobs) exporter.free();
    this.#jobs = [];
  }

  /** Works on the oldest for `ms` at most. Returns whether there is more to do. */
  work(ms: number) {
    const [job] = this.#jobs;
    if (!job) return false;
    const end = performance.now() + ms;
    try {
      do {
        const text = job.exporter.next(EVENTS_PER_CALL);
        if (text === undefined) {
          this.#send(job);
          this.#drop(job);
          job.resolve();
          break;
        }
        job.text += text;
      } while (performance.now() < end);
      if (job.text.length >= CHUNK) this.#send(job);
    } catch (error) {
      this.#drop(job);
      job.reject(new Error(messageOf(error)));
    }
    return this.#jobs.length > 0;
  }

  #send(job: Job) {
    job.sent.push(job.chunk(job.text, job.exporter.share()));
    job.text = "";
  }

  #drop(job: Job) {
    job.exporter.free();
    this.#jobs = this.#jobs.filter((other) => other !== job);
  }
}
