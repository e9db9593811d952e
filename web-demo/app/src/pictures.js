// @ts-check
// Pictures of the runs for the page, in buffers that go to and fro: no frame allocates once it has been a while.
import { shownPart } from "./shown.js";

/** @typedef {import("./pkg/tidegate_playground.js").Playground} Playground */
/** @typedef {import("./messages").Picture} Picture */

export class Pictures {
  /** How much of the past the lanes show, in virtual ms. */
  windowMs = 10_000;
  /** Buffers that the page has given back; undefined while it has a frame. @type {ArrayBuffer[] | undefined} */
  #spare = [];
  /** Whether the list of changes has to be sent anew. */
  #changesAreNew = true;

  /** The groups that the picture of each run has to show, where they do not follow from what waits. @type {(readonly number[] | undefined)[]} */
  held = [];

  /** Whether the page has drawn the last picture. */
  isReady() {
    return this.#spare !== undefined;
  }

  /** @param {ArrayBuffer[]} buffers */
  giveBack(buffers) {
    this.#spare = buffers;
  }

  /** The changes to the runs are others now. */
  forgetChanges() {
    this.#changesAreNew = true;
  }

  /** @param {readonly Playground[]} runs */
  take(runs) {
    const spare = this.#spare ?? [];
    this.#spare = undefined;
    const sides = runs.map((run, side) => this.#picture(run, this.held[side], spare[2 * side], spare[2 * side + 1]));
    this.#changesAreNew = false;
    return { sides, transfer: sides.flatMap(({ telemetry, lanes }) => [telemetry, lanes]) };
  }

  /** @param {Playground} run @param {readonly number[] | undefined} held @param {ArrayBuffer | undefined} spareTelemetry @param {ArrayBuffer | undefined} spareLanes
   * @returns {Picture} */
  #picture(run, held, spareTelemetry, spareLanes) {
    const telemetry = numbers(spareTelemetry, run.telemetryLength());
    const lanes = numbers(spareLanes, run.lanesLength());
    const report = run.report();
    return {
      sample: shownPart(run.sample(), held),
      buckets: run.readTelemetry(telemetry),
      telemetry: telemetry.buffer,
      lanesCount: run.readLanes(Math.max(0, run.now() - this.windowMs), lanes),
      lanes: lanes.buffer,
      windowMs: this.windowMs,
      changes: this.#changesAreNew ? run.changes() : undefined,
      next: run.nextEventMs(),
      result: report && { report, explanation: run.explanation() ?? "", digest: run.digest() },
    };
  }
}

/** An array of `length` numbers, in the spare buffer if that has the size. @param {ArrayBuffer | undefined} spare @param {number} length */
function numbers(spare, length) {
  return new Float64Array(spare?.byteLength === length * 8 ? spare : new ArrayBuffer(length * 8));
}
