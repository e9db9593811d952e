// What the page and its worker say to each other.
import type { RunReport, Sample, ScenarioInfo, TelemetryField } from "./pkg/tidegate_playground.js";

/** From the page to the worker. */
export type Command =
  /** Throws the present run away and prepares another one. `run` numbers it, so that late frames can be told apart. */
  | { type: "load"; run: number; scenario: string; seed: number }
  | { type: "play" }
  | { type: "pause" }
  /** Virtual seconds per real second. */
  | { type: "speed"; speed: number }
  /** `capacity` undefined gives the provider back to the scenario. */
  | { type: "capacity"; provider: string; capacity: number | undefined }
  /** A frame has been drawn: the next one may come, in the same buffer. */
  | { type: "drawn"; buffer: ArrayBuffer };

/** From the worker to the page. */
export type Report =
  /** The module is ready: commands are heard from now on. */
  | { type: "ready"; scenarios: ScenarioInfo[]; fields: TelemetryField[]; stride: number }
  | Frame
  /** Something that should not happen did: the run cannot go on. */
  | { type: "failed"; message: string };

/** One picture of a run. */
export interface Frame {
  type: "frame";
  run: number;
  playing: boolean;
  sample: Sample;
  /** The telemetry's arrays: see `Playground.readTelemetry`. */
  buffer: ArrayBuffer;
  buckets: number;
  /** The speed reached, in virtual seconds per real second, where it falls short of the one asked for. */
  reached: number | undefined;
  /** Present once the run has ended. */
  result: { report: RunReport; explanation: string; digest: string } | undefined;
}
