// Runs one scenario, or two in lockstep, in virtual time, beside the page. Virtual time follows real time at
// the chosen speed; when the machine cannot keep up, virtual time falls behind instead of piling up a debt.
// Each turn of the event loop works for at most SLICE_MS, and a frame is sent only after the page has drawn
// the last one.
import * as Comlink from "comlink";
import init, { completeScenario, Playground } from "./pkg/tidegate_playground.js";
import { Exports } from "./share/exports.ts";
import { files } from "./share/files.ts";
import { Pictures } from "./pictures.ts";
import { messageOf } from "./errors.ts";
import type { Intervention, PlaygroundAbout as About, RunFigures } from "./pkg/tidegate_playground.js";
import type { Listener, Side, Wanted } from "./messages.ts";
import type { Scenario } from "./pkg/tidegate_playground.js";
import type { Packed } from "./scenarios.ts";

/** The longest a turn may work, so that commands are taken at once. */
const SLICE_MS = 8;
/** Between two looks at the clock; an event takes some microseconds. */
const EVENTS_PER_CALL = 256;
/** One frame of a 60 Hz display. */
const FRAME_MS = 16;
/** The speed is measured over this long. */
const LAP_MS = 400;
/** A turn later than this means that the tab or the machine slept: then no virtual time has passed. */
const ASLEEP_MS = 500;
const NANOS_PER_MS = 1e6;
/** Two runs meet this often in a frame, so that they are shown at one instant. */
const MEETINGS_PER_FRAME = 2;

/** The runs: none before the first load, else one or two. */
let runs: Playground[] = [];
let run = 0;
let playing = false;
let speed = 1;
/** Virtual time was `virtual` at the real time `real`. */
let anchor = { virtual: 0, real: 0 };
let lastTurn = 0;
/** The latest reading of the clock. */
let latest = 0;
/** Where the present measurement of the speed began. */
let lap = { virtual: 0, real: 0 };
/** The speed of the last lap, where it fell short. */
let reached: number | undefined;
let turnIsPlanned = false;
/** Where the runs are to meet next, in virtual ms. */
let meeting = 0;
/** Where a seek leads, in virtual ms. */
let sought: number | undefined;
let changed = false;
const pictures = new Pictures();
const exports = new Exports(() => plan(true));
/** Where pictures and failures go; undefined until the page has begun. */
let listener: Listener | undefined;

const channel = new MessageChannel();
channel.port1.onmessage = () => guarded(turn);

/** Runs a step; whatever it throws ends the run and is reported to the page. */
function guarded(step: () => void) {
  try {
    step();
  } catch (error) {
    playing = false;
    sought = undefined;
    runs = [];
    exports.clear();
    void listener?.failed(messageOf(error));
  }
}

/** Plans the next turn: at once while there is work left, else in time for the next frame. */
function plan(atOnce: boolean) {
  if (turnIsPlanned) return;
  turnIsPlanned = true;
  // A zero timeout is held back to 4 ms; a message is not.
  if (atOnce) channel.port2.postMessage(undefined);
  else setTimeout(() => guarded(turn), FRAME_MS);
}

/**
 * The present instant, in virtual ms: that of the run which is furthest behind, among those that have not
 * ended.
 */
function now() {
  const going = runs.filter((one) => !one.isFinished());
  return going.length > 0 ? Math.min(...going.map((one) => one.now())) : Math.max(0, ...runs.map((one) => one.now()));
}

/**
 * The next nanosecond after an instant in virtual ms. It is the number that the core gives for that instant;
 * adding a millionth may end just before it.
 */
const nextNano = (ms: number) => (Math.round(ms * NANOS_PER_MS) + 1) / NANOS_PER_MS;

const ended = () => runs.every((one) => one.isFinished());

/** Real time in ms. It never steps back, as clocks of browsers may by a fraction of a millisecond. */
function realTime() {
  latest = Math.max(latest, performance.now());
  return latest;
}

/** Virtual time follows real time from `real` on. */
function reanchor(real = realTime()) {
  anchor = { virtual: now(), real };
}

/** The same, and the speed is measured afresh. */
function restart(real = realTime()) {
  reanchor(real);
  lap = anchor;
  lastTurn = anchor.real;
  meeting = anchor.virtual;
  reached = undefined;
}

/**
 * Brings all runs to `to`. Returns whether they are there; they may not be when the clock strikes `end`.
 * @param to in virtual ms
 */
function bring(to: number, end: number) {
  for (const one of runs) {
    while (!one.advanceTo(to, EVENTS_PER_CALL)) {
      if (performance.now() >= end) return false;
    }
  }
  return true;
}

/** Works up to `target`, for one slice at most; two runs meet on the way. */
function slice(target: number) {
  const end = performance.now() + SLICE_MS;
  // Only an instant that both have reached moves the meeting on, so that neither runs ahead.
  const stride = runs.length > 1 ? Math.max((speed * FRAME_MS) / MEETINGS_PER_FRAME, 1e-3) : Infinity;
  meeting = Math.min(Math.max(meeting, now()), target);
  while (bring(meeting, end)) {
    if (meeting >= target) return true;
    if (performance.now() >= end) return false;
    meeting = Math.min(meeting + stride, target);
  }
  return false;
}

/** Compares the speed reached with the one asked for. */
function measure(virtual: number, real: number) {
  if (real - lap.real < LAP_MS) return;
  const latest = (virtual - lap.virtual) / (real - lap.real);
  reached = latest < 0.8 * speed ? latest : undefined;
  lap = { virtual, real };
}

function turn() {
  turnIsPlanned = false;
  if (runs.length === 0) return;
  if (sought !== undefined) {
    goOnSeeking(sought);
    return;
  }
  const more = exports.work(SLICE_MS);
  if (playing) goOnPlaying();
  if (more) plan(true);
}

function goOnPlaying() {
  const real = realTime();
  if (real - lastTurn > ASLEEP_MS) restart(real);
  const done = slice(anchor.virtual + (real - anchor.real) * speed);
  changed = true;
  if (!done) reanchor();
  measure(now(), real);
  lastTurn = real;
  if (ended()) playing = false;
  sendFrame();
  if (playing) plan(!done);
}

/** @param to in virtual ms */
function goOnSeeking(to: number) {
  const from = seekFrom;
  if (!bring(to, performance.now() + SLICE_MS)) {
    const share = to > from ? (now() - from) / (to - from) : 0;
    void listener?.seeking(run, Math.min(Math.max(share, 0), 1));
    plan(true);
    return;
  }
  sought = undefined;
  void listener?.seeking(run, undefined);
  restart();
  changed = true;
  sendFrame();
  plan(true);
}

/** Where the present seek began, in virtual ms. */
let seekFrom = 0;

/** @param to in virtual ms */
function seek(to: number) {
  if (runs.length === 0) return;
  for (const one of runs) if (to < one.now() || sought !== undefined) one.seek(to);
  seekFrom = now();
  sought = to;
  plan(true);
}

/** Sends a picture of the runs if there is something new and the page is ready for it. */
function sendFrame() {
  // Half a seek is nothing to look at.
  if (runs.length === 0 || !changed || !pictures.isReady() || sought !== undefined) return;
  changed = false;
  const { sides, transfer } = pictures.take(runs);
  void listener?.frame(Comlink.transfer({ run, playing, sides, reached }, transfer)).then((buffers) => {
    pictures.giveBack(buffers);
    sendFrame();
  });
}

function play() {
  if (playing || runs.length === 0 || ended()) return;
  playing = true;
  restart();
  changed = true;
  plan(true);
}

/**
 * A slice may have stopped among the events of one instant, or before the runs met: a pause never shows that.
 */
function pause() {
  playing = false;
  const to = Math.max(0, ...runs.filter((one) => !one.isFinished()).map((one) => one.now()));
  if (sought === undefined) bring(to, Infinity);
  changed = true;
}

function step() {
  playing = false;
  if (sought !== undefined) return;
  const due = (one: Playground) => (one.isFinished() ? Infinity : (one.nextEventMs() ?? Infinity));
  const [first, ...others] = [...runs].sort((one, other) => due(one) - due(other));
  if (!first || due(first) === Infinity) return;
  first.step();
  for (const other of others) if (due(other) > first.now()) other.advanceTo(first.now(), 1);
  changed = true;
}

/** The scenarios that come with the page and have been asked for, by name. */
const known: Map<string, Scenario> = new Map();

function complete({ info, text }: Packed) {
  const scenario = completeScenario({ ...info, ...JSON.parse(text) });
  known.set(info.name, scenario);
  return scenario;
}

/** Runs to prepare. `isTakenBack`: the branch goes on after `at`, and the next change cuts that off. */
export interface LoadQuestion {
  sides: Wanted[];
  seed: number;
  at: number;
  isTakenBack: boolean;
}

/** Prepares runs; those there are stay if one of the new ones cannot be. */
function load(number: number, { sides, seed, at, isTakenBack }: LoadQuestion) {
  const next = [];
  try {
    for (const { scenario, own } of sides) {
      const whole = typeof scenario === "string" ? known.get(scenario) : scenario;
      if (!whole) throw new Error("the scenario has not been asked for");
      next.push(new Playground({ ...whole, ...own }, seed));
    }
  } catch (error) {
    for (const one of next) one.free();
    throw error;
  }
  for (const one of runs) one.free();
  exports.clear();
  runs = next;
  // As if they had been sought back: the next change drops what was to come.
  if (isTakenBack) for (const one of runs) one.takenBack();
  run = number;
  playing = false;
  sought = undefined;
  pictures.held = [];
  pictures.forgetChanges();
  restart();
  changed = true;
  if (at > 0) seek(at);
  return { layouts: runs.map((one) => one.layout()) };
}

function sideOf(side: number) {
  const found = runs[side];
  if (!found) throw new Error("there is no such run");
  return found;
}

/** The run of this side. Throws if the page means runs that have been replaced. */
function runOf(number: number, side: number) {
  if (number !== run) throw new Error("the run has been replaced");
  return sideOf(side);
}

/** Changes one run, or all of them if `side` is undefined, from now on. */
function change(number: number, what: Intervention, side: Side | undefined) {
  if (number !== run) throw new Error("the run has been replaced");
  if (sought !== undefined) throw new Error("the run is still on its way to another instant");
  for (const [index, one] of runs.entries()) if (side === undefined || side === index) one.change(what);
  // It comes a nanosecond later: a person who has paused sees it at once.
  if (!playing) for (const one of runs) while (!one.advanceTo(nextNano(one.now()), EVENTS_PER_CALL));
  pictures.forgetChanges();
  changed = true;
  const at = Math.max(...runs.map((one) => one.now()));
  return { changes: runs.map((one) => one.changes()), at: playing ? nextNano(at) : at };
}

/** Makes a step of a command: what it throws ends the run, and what it changes is shown. */
function command(happens: () => void) {
  guarded(() => {
    happens();
    sendFrame();
  });
}

/** Answers a question: what it throws is the answer, and what it changes is shown. */
function answer<T>(found: () => T): T {
  const answered = found();
  guarded(sendFrame);
  return answered;
}

/**
 * What the page calls. `number` is the number of the load that prepared the runs: a call about runs that have
 * been replaced since then throws. Instants are virtual milliseconds.
 */
const scheduler = {
  /** Sends everything that happens to `to` from now on. Resolves once the module is ready. */
  async begin(to: Listener & Comlink.ProxyMarked) {
    listener = to;
    try {
      await init();
    } catch (error) {
      throw new Error(`the scheduler could not be loaded: ${messageOf(error)}`);
    }
    return { fields: Playground.telemetryFields(), stride: Playground.telemetryStride() };
  },
  play: () => command(play),
  pause: () => command(pause),
  /** Makes exactly one decision; of several runs, the one whose next is the earliest. */
  step: () => command(step),
  /** Goes to an instant: back by running anew with the same changes, forward by running on. */
  seek: (to: number) => command(() => seek(to)),
  /** @param virtual seconds per real second */
  setSpeed: (virtual: number) =>
    command(() => {
      speed = virtual;
      restart();
    }),
  /** @param ms how much of the past the workers' timeline shows */
  setWindow: (ms: number) =>
    command(() => {
      pictures.windowMs = ms;
      changed = true;
    }),
  /**
   * @param groups which groups of a run the pictures show where there are very many, by index; undefined:
   * those with the most waiting
   */
  hold: (side: Side, groups: readonly number[] | undefined) =>
    command(() => {
      pictures.held[side] = groups;
      changed = true;
    }),
  load: (number: number, question: LoadQuestion) => answer(() => load(number, question)),
  change: (number: number, what: Intervention, side: Side | undefined) => answer(() => change(number, what, side)),
  why: (number: number, side: number, about: About) => runOf(number, side).why(about),
  /** How a run stands: enough to bring it about again. */
  snapshot(number: number, side: Side) {
    const one = runOf(number, side);
    return { scenario: one.scenario(), changes: one.changes(), seed: one.seed(), at: one.now() };
  },
  /**
   * How long tasks that build on others waited from being ready to their start, the mean in virtual ms; NaN
   * where there were none.
   */
  meanWait(number: number, side: Side) {
    const { downstream_ready_gap: wait } = JSON.parse(runOf(number, side).results()).figures as RunFigures;
    return wait.count > 0 ? wait.mean_ns / NANOS_PER_MS : Number.NaN;
  },
  results: (number: number, side: Side) => runOf(number, side).results(),
  /** Resolves once `chunk` has taken all of the text. */
  export: (number: number, side: Side, what: "trace" | "decisions", whole: boolean, chunk: (text: string, share: number) => Promise<void>) =>
    exports.add(what, whole, chunk, runOf(number, side)),
  /** A scenario with every field. From then on it can be asked for by its name. */
  completeScenario: complete,
  readScenario: async (toml: string): Promise<Scenario> => (await files()).readScenario(toml),
  writeScenario: async (scenario: Scenario): Promise<string> => (await files()).writeScenario(scenario),
};

export type Scheduler = typeof scheduler;

Comlink.expose(scheduler);
