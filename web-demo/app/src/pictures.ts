// Pictures of the runs for the page, in buffers that go to and fro: no frame allocates once it has been a
// while.
import { whatIsShown } from "./shown.ts";
import type { Playground } from "./pkg/tidegate_playground.js";
import type { Picture } from "./messages.ts";

export class Pictures {
  /** How much of the past the lanes show, in virtual ms. */
  windowMs = 10_000;
  /** Buffers that the page has given back; undefined while it has a frame. */
  #spare: ArrayBuffer[] | undefined = [];
  /** Whether the list of changes has to be sent anew. */
  #changesAreNew = true;

  /** The groups that the picture of each run has to show, where they do not follow from what waits. */
  held: (readonly number[] | undefined)[] = [];

  /** Whether the page has drawn the last picture. */
  isReady() {
    return this.#spare !== undefined;
  }

  giveBack(buffers: ArrayBuffer[]) {
    this.#spare = buffers;
  }

  /** The changes to the runs are others now. */
  forgetChanges() {
    this.#changesAreNew = true;
  }

  take(runs: readonly Playground[]) {
    const spare = this.#spare ?? [];
    this.#spare = undefined;
    const sides = runs.map((run, side) => this.#picture(run, this.held[side], spare[2 * side], spare[2 * side + 1]));
    this.#changesAreNew = false;
    return { sides, transfer: sides.flatMap(({ telemetry, lanes }) => [telemetry, lanes]) };
  }

  #picture(run: Playground, held: readonly number[] | undefined, spareTelemetry: ArrayBuffer | undefined, spareLanes: ArrayBuffer | undefined): Picture {
    const telemetry = numbers(spareTelemetry, run.telemetryLength());
    const lanes = numbers(spareLanes, run.lanesLength());
    const report = run.report();
    return {
      sample: run.sample(whatIsShown(held)),
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

/** An array of `length` numbers, in the spare buffer if that has the size. */
function numbers(spare: ArrayBuffer | undefined, length: number) {
  return new Float64Array(spare?.byteLength === length * 8 ? spare : new ArrayBuffer(length * 8));
}
