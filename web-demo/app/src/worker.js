// @ts-check
/// <reference lib="webworker" />
// Runs one scenario, or two in lockstep, in virtual time, beside the page. Virtual time follows real time at the chosen
// speed; when the machine cannot keep up, virtual time falls behind instead of piling up a debt. Each turn of the event
// loop works for at most SLICE_MS, and a frame is sent only after the page has drawn the last one.
import init, { completeScenario, Playground } from "./pkg/tidegate_playground.js";
import { Exports } from "./take/exports.js";
import { files, Missing } from "./take/files.js";
import { Pictures } from "./pictures.js";
import { wordsOf } from "./words.js";

/** @typedef {import("./messages").Answers} Answers */
/** @typedef {import("./messages").Command} Command */
/** @typedef {import("./messages").Question} Question */
/** @typedef {import("./messages").Report} Report */
/** @typedef {import("./pkg/tidegate_playground.js").Scenario} Scenario */
/** @typedef {import("./scenarios.js").Packed} Packed */

/** The longest a turn may work, so that commands are heard at once. */
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

/** The runs: none before the first load, else one or two. @type {Playground[]} */
let runs = [];
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
/** The speed of the last lap, where it fell short. @type {number | undefined} */
let reached;
let turnIsPlanned = false;
/** Where the runs are to meet next, in virtual ms. */
let meeting = 0;
/** Where a seek leads, in virtual ms. @type {number | undefined} */
let sought;
let changed = false;
const pictures = new Pictures();
const exports = new Exports((chunk) => post(chunk), () => plan(true));

const channel = new MessageChannel();
channel.port1.onmessage = () => guarded(turn);

/** @param {Report} report @param {Transferable[]} [transfer] */
function post(report, transfer = []) {
  self.postMessage(report, { transfer });
}

/** Runs a step; whatever it throws ends the run and is told to the page. @param {() => void} step */
function guarded(step) {
  try {
    step();
  } catch (error) {
    playing = false;
    sought = undefined;
    runs = [];
    exports.clear();
    post({ type: "failed", message: wordsOf(error) });
  }
}

/** Plans the next turn: at once while there is work left, else in time for the next frame. @param {boolean} atOnce */
function plan(atOnce) {
  if (turnIsPlanned) return;
  turnIsPlanned = true;
  // A zero timeout is held back to 4 ms; a message is not.
  if (atOnce) channel.port2.postMessage(undefined);
  else setTimeout(() => guarded(turn), FRAME_MS);
}

/** The present instant, in virtual ms: that of the run which is furthest behind, among those that have not ended. */
function now() {
  const going = runs.filter((one) => !one.isFinished());
  return going.length > 0 ? Math.min(...going.map((one) => one.now())) : Math.max(0, ...runs.map((one) => one.now()));
}

/** The next nanosecond after an instant in virtual ms. It is the number that the core gives for that instant; adding a millionth may end just
 * before it. @param {number} ms */
const nextNano = (ms) => (Math.round(ms * NANOS_PER_MS) + 1) / NANOS_PER_MS;

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

/** Brings all runs to `to`. Returns whether they are there; they may not be when the clock strikes `end`.
 * @param {number} to in virtual ms @param {number} end */
function bring(to, end) {
  for (const one of runs) {
    while (!one.advanceTo(to, EVENTS_PER_CALL)) {
      if (performance.now() >= end) return false;
    }
  }
  return true;
}

/** Works up to `target`, for one slice at most; two runs meet on the way. @param {number} target */
function slice(target) {
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

/** Compares the speed reached with the one asked for. @param {number} virtual @param {number} real */
function measure(virtual, real) {
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

/** @param {number} to in virtual ms */
function goOnSeeking(to) {
  const from = seekFrom;
  if (!bring(to, performance.now() + SLICE_MS)) {
    const share = to > from ? (now() - from) / (to - from) : 0;
    post({ type: "seeking", run, share: Math.min(Math.max(share, 0), 1) });
    plan(true);
    return;
  }
  sought = undefined;
  post({ type: "seeking", run, share: undefined });
  restart();
  changed = true;
  sendFrame();
  plan(true);
}

/** Where the present seek began, in virtual ms. */
let seekFrom = 0;

/** @param {number} to in virtual ms */
function seek(to) {
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
  post({ type: "frame", run, playing, sides, reached }, transfer);
}

function play() {
  if (playing || runs.length === 0 || ended()) return;
  playing = true;
  restart();
  changed = true;
  plan(true);
}

/** A slice may have stopped among the events of one instant, or before the runs met: a pause never shows that. */
function pause() {
  playing = false;
  const to = Math.max(0, ...runs.filter((one) => !one.isFinished()).map((one) => one.now()));
  if (sought === undefined) bring(to, Infinity);
  changed = true;
}

function step() {
  playing = false;
  if (sought !== undefined) return;
  const due = (/** @type {Playground} */ one) => (one.isFinished() ? Infinity : (one.nextEventMs() ?? Infinity));
  const [first, ...others] = [...runs].sort((one, other) => due(one) - due(other));
  if (!first || due(first) === Infinity) return;
  first.step();
  for (const other of others) if (due(other) > first.now()) other.advanceTo(first.now(), 1);
  changed = true;
}

/** The scenarios that come with the page and have been asked for, by name. @type {Map<string, Scenario>} */
const known = new Map();

/** @param {Packed} packed */
function complete({ info, text }) {
  const scenario = completeScenario({ ...info, ...JSON.parse(text) });
  known.set(info.name, scenario);
  return scenario;
}

/** Prepares runs; those there are stay if one of the new ones cannot be. @param {number} number
 * @param {Answers["load"]["question"]} question */
function load(number, { sides, seed, at, isTakenBack }) {
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

/** @param {number} side */
function sideOf(side) {
  const found = runs[side];
  if (!found) throw new Error("there is no such run");
  return found;
}

/** @param {number} id @param {number} number @param {Question} question */
function answer(id, number, question) {
  switch (question.kind) {
    case "load":
      return load(number, question);
    case "completeScenario":
      return complete(question);
    case "readScenario":
      return files().then(({ readScenario }) => readScenario(question.toml));
    case "writeScenario":
      return files().then(({ writeScenario }) => writeScenario(question.scenario));
    default:
      if (number !== run) throw new Error("the run has been replaced");
      return answerAboutRun(id, question);
  }
}

/** @param {number} id @param {Exclude<Question, { kind: "load" | "completeScenario" | "readScenario" | "writeScenario" }>} question */
function answerAboutRun(id, question) {
  if (question.kind === "change") {
    if (sought !== undefined) throw new Error("the run is still on its way to another instant");
    for (const [side, one] of runs.entries()) {
      if (question.side === undefined || question.side === side) one.change(question.what);
    }
    // It comes a nanosecond later: a person who has paused sees it at once.
    if (!playing) for (const one of runs) while (!one.advanceTo(nextNano(one.now()), EVENTS_PER_CALL));
    pictures.forgetChanges();
    changed = true;
    const at = Math.max(...runs.map((one) => one.now()));
    return { changes: runs.map((one) => one.changes()), at: playing ? nextNano(at) : at };
  }
  const one = sideOf(question.side);
  switch (question.kind) {
    case "why":
      return one.why(question.about);
    case "standing":
      return { scenario: one.scenario(), changes: one.changes(), seed: one.seed(), at: one.now() };
    case "results":
      return one.results();
    case "export":
      return exports.add(id, question, one);
  }
}

/** @param {Extract<Command, { type: "ask" }>} command */
function hear({ id, run: number, question }) {
  /** @param {unknown} found */
  const give = (found) => post({ type: "answer", id, answer: /** @type {Answers[keyof Answers]["answer"]} */ (found) });
  const refuse = (/** @type {unknown} */ error) => post({ type: "refused", id, message: wordsOf(error), missing: error instanceof Missing ? error.path : undefined });
  try {
    const found = answer(id, number, question);
    if (found instanceof Promise) found.then(give, refuse);
    else give(found);
  } catch (error) {
    refuse(error);
  }
}

/** @param {Command} command */
function obey(command) {
  switch (command.type) {
    case "play":
      play();
      break;
    case "pause":
      pause();
      break;
    case "step":
      step();
      break;
    case "seek":
      seek(command.to);
      break;
    case "speed":
      speed = command.speed;
      restart();
      break;
    case "window":
      pictures.windowMs = command.ms;
      changed = true;
      break;
    case "hold":
      pictures.held[command.side] = command.groups;
      changed = true;
      break;
    case "drawn":
      pictures.giveBack(command.buffers);
      break;
    case "ask":
      hear(command);
      break;
  }
  sendFrame();
}

self.onmessage = (event) => guarded(() => obey(event.data));

init().then(
  () => post({ type: "ready", fields: Playground.telemetryFields(), stride: Playground.telemetryStride() }),
  (error) => post({ type: "failed", message: `the scheduler could not be loaded: ${wordsOf(error)}` }),
);
