// @ts-check
/// <reference lib="webworker" />
// Exports of a run, made by running it anew beside the one that is shown: a slice at a time, in chunks of text.
import { wordsOf } from "../words.js";
import { files } from "./files.js";

/** @typedef {import("../pkg/tidegate_files.js").Exporter} Exporter */
/** @typedef {import("../pkg/tidegate_playground.js").Playground} Playground */
/** @typedef {import("../messages").Answers} Answers */
/** @typedef {import("../messages").Report} Report */

/** Between two looks at the clock. */
const EVENTS_PER_CALL = 256;
/** Text is sent on when there is so much of it, in UTF-16 units. */
const CHUNK = 1 << 18;

/**
 * @typedef {object} Job
 * @property {number} id of the question
 * @property {Exporter} exporter
 * @property {string} text not sent yet
 * @property {(nothing: undefined) => void} resolve
 * @property {(error: Error) => void} reject
 */

export class Exports {
  #post;
  #plan;
  /** Grows when the runs are replaced: an export that was still being prepared is given up. */
  #era = 0;
  /** The oldest first. @type {Job[]} */
  #jobs = [];

  /** @param {(chunk: Extract<Report, { type: "chunk" }>) => void} post @param {() => void} plan asks for a turn */
  constructor(post, plan) {
    this.#post = post;
    this.#plan = plan;
  }

  /** Resolves once all of the text has been sent.
   * @param {number} id @param {Answers["export"]["question"]} wish what of, and to its end or to the present instant
   * @param {Playground} run @returns {Promise<undefined>} */
  async add(id, { what, whole }, run) {
    const era = this.#era;
    const [scenario, seed, until] = [run.scenario(), run.seed(), whole || run.isFinished() ? undefined : run.now()];
    const { Exporter } = await files();
    if (era !== this.#era) throw new Error("the run has been replaced");
    const exporter = new Exporter(what, scenario, seed, until);
    return new Promise((resolve, reject) => {
      this.#jobs.push({ id, exporter, text: "", resolve, reject });
      this.#plan();
    });
  }

  /** Gives all of them up: the runs are others now. */
  clear() {
    this.#era += 1;
    for (const job of this.#jobs) job.reject(new Error("the run has been replaced"));
    for (const { exporter } of this.#jobs) exporter.free();
    this.#jobs = [];
  }

  /** Works on the oldest for `ms` at most. Returns whether there is more to do. @param {number} ms */
  work(ms) {
    const [job] = this.#jobs;
    if (!job) return false;
    const end = performance.now() + ms;
    try {
      do {
        const text = job.exporter.next(EVENTS_PER_CALL);
        if (text === undefined) {
          this.#send(job);
          this.#drop(job);
          job.resolve(undefined);
          break;
        }
        job.text += text;
      } while (performance.now() < end);
      if (job.text.length >= CHUNK) this.#send(job);
    } catch (error) {
      this.#drop(job);
      job.reject(new Error(wordsOf(error)));
    }
    return this.#jobs.length > 0;
  }

  /** @param {Job} job */
  #send(job) {
    this.#post({ type: "chunk", id: job.id, text: job.text, share: job.exporter.share() });
    job.text = "";
  }

  /** @param {Job} job */
  #drop(job) {
    job.exporter.free();
    this.#jobs = this.#jobs.filter((other) => other !== job);
  }
}
