// @ts-check
/// <reference lib="webworker" />
// Exports of a run, made by running it anew beside the one that is shown: a slice at a time, in chunks of text.
import { Exporter } from "../pkg/tidegate_playground.js";

/** @typedef {import("../pkg/tidegate_playground.js").Playground} Playground */
/** @typedef {import("../messages").Answers} Answers */
/** @typedef {import("../messages").Report} Report */

/** Between two looks at the clock. */
const EVENTS_PER_CALL = 256;
/** Text is sent on when there is so much of it, in UTF-16 units. */
const CHUNK = 1 << 18;

export class Exports {
  /** Returned by what answers later. */
  LATER = Symbol("later");
  #post;
  #plan;
  /** @type {{ id: number, exporter: Exporter, text: string }[]} */
  #jobs = [];

  /** @param {(report: Report) => void} post @param {() => void} plan asks for a turn */
  constructor(post, plan) {
    this.#post = post;
    this.#plan = plan;
  }

  /** @param {number} id @param {Answers["export"]["question"]} wish what of, and to its end or to the present instant @param {Playground} run */
  add(id, { what, whole }, run) {
    const exporter = new Exporter(what, run.scenario(), run.seed(), whole || run.isFinished() ? undefined : run.now());
    this.#jobs.push({ id, exporter, text: "" });
    this.#plan();
  }

  /** Gives all of them up: the runs are others now. */
  clear() {
    for (const { id, exporter } of this.#jobs) {
      exporter.free();
      this.#post({ type: "refused", id, message: "the run has been replaced" });
    }
    this.#jobs = [];
  }

  /** Works on the oldest for `ms` at most. Returns whether there is more to do. @param {number} ms */
  work(ms) {
    const job = this.#jobs[0];
    if (!job) return false;
    const end = performance.now() + ms;
    try {
      do {
        const text = job.exporter.next(EVENTS_PER_CALL);
        if (text === undefined) {
          this.#finish(job.id, { type: "answer", id: job.id, answer: undefined });
          return this.#jobs.length > 0;
        }
        job.text += text;
      } while (performance.now() < end);
      if (job.text.length >= CHUNK) this.#send();
    } catch (error) {
      this.#finish(job.id, { type: "refused", id: job.id, message: error instanceof Error ? error.message : String(error) });
    }
    return this.#jobs.length > 0;
  }

  #send() {
    const job = this.#jobs[0];
    if (!job) return;
    this.#post({ type: "chunk", id: job.id, text: job.text, share: job.exporter.share() });
    job.text = "";
  }

  /** @param {number} id @param {Report} report */
  #finish(id, report) {
    if (report.type === "answer") this.#send();
    this.#jobs.find((job) => job.id === id)?.exporter.free();
    this.#jobs = this.#jobs.filter((job) => job.id !== id);
    this.#post(report);
  }
}
