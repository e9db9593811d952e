// What passes between the page and its worker.
import type { Change, PlaygroundSample, RunReport, Scenario } from "./pkg/tidegate_playground.js";

/** A run of the set-up: the only one or the left one is 0, the one beside it is 1. */
export type Side = 0 | 1;

/**
 * A run to prepare: a scenario, by name where the worker has it, and what the run has instead of what that
 * has. Large scenarios take long to send.
 */
export interface Wanted {
  scenario: Scenario | string;
  own: Partial<Scenario>;
}

/** What the worker calls on the page. */
export interface Listener {
  /**
   * Takes a picture of the runs, and gives its buffers back once it has been drawn. No other comes before.
   */
  frame(frame: Frame): Promise<ArrayBuffer[]>;
  /** The share of a long seek that is done, 0 to 1; `undefined` once it has ended. */
  seeking(run: number, share: number | undefined): void;
  /** Something that should not happen did: the runs cannot go on. */
  failed(message: string): void;
}

/** One picture of all runs, at one instant unless the machine cannot keep up. */
export interface Frame {
  run: number;
  playing: boolean;
  sides: Picture[];
  /** The speed reached, in virtual seconds per real second, where it falls short of the one asked for. */
  reached: number | undefined;
}

/** One run at one instant. */
export interface Picture {
  sample: PlaygroundSample;
  /** See `Playground.readTelemetry`. */
  telemetry: ArrayBuffer;
  buckets: number;
  /** See `Playground.readLanes`. */
  lanes: ArrayBuffer;
  lanesCount: number;
  /** How much of the past the lanes show, in virtual milliseconds. */
  windowMs: number;
  /** All changes to the run, those to come included; only in the first picture after they have changed. */
  changes: Change[] | undefined;
  /** When the next event is due, in virtual milliseconds; undefined when nothing is left to happen. */
  next: number | undefined;
  /** Present once the run has ended. */
  result: { report: RunReport; explanation: string; digest: string } | undefined;
}
