// @ts-check
// The page's end of the worker: commands go out, frames and answers come in. Late ones, of a run that has been
// replaced, are dropped here.
import { fateOf, NotLoaded } from "./fetching.js";

/** @typedef {import("./messages").Answers} Answers */
/** @typedef {import("./messages").Command} Command */
/** @typedef {import("./messages").Frame} Frame */
/** @typedef {import("./messages").Kind} Kind */
/** @typedef {import("./messages").Question} Question */
/** @typedef {import("./messages").Report} Report */
/** @typedef {Extract<Report, { type: "ready" }>} Ready */

/**
 * @typedef {object} Listener
 * @property {(frame: Frame) => void} frame once per frame of the display at most
 * @property {(share: number | undefined) => void} seeking a long seek goes on, or has ended
 * @property {(message: string) => void} failed the run cannot go on
 */

/**
 * @typedef {object} Waiting
 * @property {(answer: never) => void} resolve
 * @property {(error: Error) => void} reject
 * @property {((text: string, share: number) => void) | undefined} chunk
 */

export class Runner {
  #worker = new Worker(new URL("worker.js", import.meta.url), { type: "module", name: "scheduler" });
  #listener;
  /** The run that the worker has: the last one whose load it answered. A refused load leaves it as it is. */
  #run = 0;
  #lastNumber = 0;
  #nextId = 0;
  /** @type {Map<number, Waiting>} */
  #waiting = new Map();
  /** The newest frame that is not drawn yet. @type {Frame | undefined} */
  #pending;
  /** Rejects where the worker fails before. @type {Promise<Ready>} */
  ready;
  /** @type {(error: Error) => void} */
  #never = () => {};

  /** @param {Listener} listener */
  constructor(listener) {
    this.#listener = listener;
    this.ready = new Promise((resolve, reject) => {
      this.#never = reject;
      this.#worker.onmessage = (/** @type {MessageEvent<Report>} */ { data }) => {
        if (data.type === "ready") resolve(data);
        else this.#hear(data);
      };
    });
    this.#worker.onerror = (event) => {
      event.preventDefault();
      this.#fail(`the scheduler's worker failed: ${event.message || "it could not be started"}`);
    };
  }

  /** @param {Command} command @param {Transferable[]} [transfer] */
  tell(command, transfer = []) {
    this.#worker.postMessage(command, { transfer });
  }

  /** Asks about the present run. Rejects with what the core says when it refuses.
   * @template {Kind} K
   * @param {K} kind @param {Answers[K]["question"]} question @param {(text: string, share: number) => void} [chunk]
   * @returns {Promise<Answers[K]["answer"]>} */
  ask(kind, question, chunk) {
    return this.#ask(kind, question, this.#run, chunk);
  }

  /** Prepares other runs. Frames of the old ones are not shown any more once the new ones are there.
   * @param {Answers["load"]["question"]} question */
  async load(question) {
    this.#lastNumber += 1;
    const run = this.#lastNumber;
    const answer = await this.#ask("load", question, run, undefined);
    this.#run = run;
    return answer;
  }

  /** @template {Kind} K
   * @param {K} kind @param {Answers[K]["question"]} question @param {number} run
   * @param {((text: string, share: number) => void) | undefined} chunk @returns {Promise<Answers[K]["answer"]>} */
  #ask(kind, question, run, chunk) {
    this.#nextId += 1;
    const id = this.#nextId;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject, chunk });
      this.tell({ type: "ask", id, run, question: /** @type {Question} */ ({ kind, ...question }) });
    });
  }

  /** @param {Exclude<Report, { type: "ready" }>} report */
  #hear(report) {
    switch (report.type) {
      case "frame":
        this.#pending = report;
        requestAnimationFrame(() => this.#drawPending());
        break;
      case "seeking":
        if (report.run === this.#run) this.#listener.seeking(report.share);
        break;
      case "chunk":
        this.#waiting.get(report.id)?.chunk?.(report.text, report.share);
        break;
      case "answer":
        this.#waiting.get(report.id)?.resolve(/** @type {never} */ (report.answer));
        this.#waiting.delete(report.id);
        break;
      case "refused":
        void this.#refuse(report);
        break;
      case "failed":
        this.#fail(report.message);
        break;
    }
  }

  /** @param {Extract<Report, { type: "refused" }>} report */
  async #refuse({ id, message, missing }) {
    const error = missing === undefined ? new Error(message) : new NotLoaded("What reads and writes files", await fateOf(missing, Infinity));
    this.#waiting.get(id)?.reject(error);
    this.#waiting.delete(id);
  }

  /** No answer comes any more. @param {string} message */
  #fail(message) {
    const error = new Error(message);
    this.#never(error);
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
    this.#listener.failed(message);
  }

  #drawPending() {
    const frame = this.#pending;
    this.#pending = undefined;
    if (!frame) return;
    const buffers = frame.sides.flatMap(({ telemetry, lanes }) => [telemetry, lanes]);
    try {
      if (frame.run === this.#run) this.#listener.frame(frame);
    } finally {
      this.tell({ type: "drawn", buffers }, buffers);
    }
  }
}
