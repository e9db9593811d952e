// What the page and its worker say to each other.
import type { About, Change, Intervention, Layout, RunReport, Scenario, TelemetryField, Why } from "./pkg/tidegate_playground.js";
import type { Packed } from "./scenarios.js";
import type { ShownSample } from "./shown.js";

/** A run of the set-up: the only one or the left one is 0, the one beside it is 1. */
export type Side = 0 | 1;

/** From the page to the worker. */
export type Command =
  | { type: "play" }
  | { type: "pause" }
  /** Exactly one decision; of two runs, the one whose next is earlier. */
  | { type: "step" }
  /** To an instant, in virtual milliseconds: back by running anew with the same changes, forward by running on. */
  | { type: "seek"; to: number }
  /** Virtual seconds per real second. */
  | { type: "speed"; speed: number }
  /** How much of the past the workers' timeline shows, in virtual milliseconds. */
  | { type: "window"; ms: number }
  /** Which groups of a run the pictures show where there are very many, by index; undefined: those with the most waiting. */
  | { type: "hold"; side: Side; groups: readonly number[] | undefined }
  /** A frame has been drawn: the next one may come, in the same buffers. */
  | { type: "drawn"; buffers: ArrayBuffer[] }
  /** Answered once, by an `answer` with the same id. Questions about another run than the present one fail. */
  | { type: "ask"; id: number; run: number; question: Question };

/** A run to prepare: a scenario, by name where the worker has it, and what the run has instead of what that has. Large
 * scenarios take long to send. */
export interface Wanted {
  scenario: Scenario | string;
  own: Partial<Scenario>;
}

/** What the page can ask, and what the answer is. */
export interface Answers {
  /**
   * Throws the present runs away and prepares others: one, or two that go in lockstep. Fails, and leaves them as they are, for a scenario that cannot run.
   * `isTakenBack`: the branch goes on after `at`, and the next change cuts that off.
   */
  load: { question: { sides: Wanted[]; seed: number; at: number; isTakenBack: boolean }; answer: { layouts: Layout[] } };
  /** Changes a run from now on; undefined: all. The answer is all changes of each run, and when this one comes, in virtual ms. */
  change: { question: { what: Intervention; side: Side | undefined }; answer: { changes: Change[][]; at: number } };
  why: { question: { side: Side; about: About }; answer: Why[] };
  /** A scenario with every field. From then on it can be asked for by its name. */
  completeScenario: { question: Packed; answer: Scenario };
  readScenario: { question: { toml: string }; answer: Scenario };
  writeScenario: { question: { scenario: Scenario }; answer: string };
  /** How a run stands: enough to bring it about again. */
  standing: { question: { side: Side }; answer: { scenario: Scenario; changes: Change[]; seed: number; at: number } };
  results: { question: { side: Side }; answer: string };
  /** The text comes in `chunk`s before the answer. */
  export: { question: { side: Side; what: "trace" | "decisions"; whole: boolean }; answer: undefined };
}

export type Kind = keyof Answers;
export type Question = { [K in Kind]: { kind: K } & Answers[K]["question"] }[Kind];

/** From the worker to the page. */
export type Report =
  /** The module is ready: commands are heard from now on. */
  | { type: "ready"; fields: TelemetryField[]; stride: number }
  | Frame
  /** The share of a long seek that is done, 0 to 1; `undefined` once it has ended. */
  | { type: "seeking"; run: number; share: number | undefined }
  | { type: "chunk"; id: number; text: string; share: number }
  | { type: "answer"; id: number; answer: Answers[Kind]["answer"] }
  /** `missing`: a file of the page that did not come. */
  | { type: "refused"; id: number; message: string; missing: string | undefined }
  /** Something that should not happen did: the run cannot go on. */
  | { type: "failed"; message: string };

/** One picture of all runs, at one instant unless the machine cannot keep up. */
export interface Frame {
  type: "frame";
  run: number;
  playing: boolean;
  sides: Picture[];
  /** The speed reached, in virtual seconds per real second, where it falls short of the one asked for. */
  reached: number | undefined;
}

/** One run at one instant. */
export interface Picture {
  sample: ShownSample;
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
