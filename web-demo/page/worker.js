// @ts-check
/// <reference lib="webworker" />
// Runs a scenario in virtual time, beside the page. Virtual time follows real time at the chosen speed; when the
// machine cannot keep up, virtual time falls behind instead of piling up a debt. Each turn of the event loop works for
// at most SLICE_MS, and a frame is sent only after the page has drawn the last one.
import init, { Playground, scenarios } from "./pkg/tidegate_playground.js";

/** @typedef {import("./messages").Command} Command */
/** @typedef {import("./messages").Report} Report */

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

/** @type {Playground | undefined} */
let playground;
let run = 0;
let playing = false;
let speed = 1;
/** Virtual time was `virtual` at the real time `real`. */
let anchor = { virtual: 0, real: 0 };
let lastTurn = 0;
/** Where the present measurement of the speed began. */
let lap = { virtual: 0, real: 0 };
/** The speed of the last lap, where it fell short. @type {number | undefined} */
let reached;
let turnIsPlanned = false;
/** Comes back with every frame drawn; undefined while the page has it. @type {ArrayBuffer | undefined} */
let buffer = new ArrayBuffer(0);
let changed = false;

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
    playground = undefined;
    post({ type: "failed", message: error instanceof Error ? error.message : String(error) });
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

/** Virtual time follows real time from here on. */
function reanchor() {
  anchor = { virtual: playground?.now() ?? 0, real: performance.now() };
}

/** The same, and the speed is measured afresh. */
function restart() {
  reanchor();
  lap = anchor;
  lastTurn = anchor.real;
  reached = undefined;
}

/** Works on the run up to `target`, for one slice at most. @param {Playground} on @param {number} target */
function slice(on, target) {
  const end = performance.now() + SLICE_MS;
  do {
    if (on.advanceTo(target, EVENTS_PER_CALL)) return true;
  } while (performance.now() < end);
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
  if (!playing || !playground) return;
  const now = performance.now();
  if (now - lastTurn > ASLEEP_MS) restart();
  const target = anchor.virtual + (now - anchor.real) * speed;
  const done = slice(playground, target);
  changed = true;
  if (!done) reanchor();
  measure(playground.now(), now);
  lastTurn = now;
  if (playground.isFinished()) playing = false;
  sendFrame();
  if (playing) plan(!done);
}

/** Sends a picture of the run if there is something new and the page is ready for it. */
function sendFrame() {
  if (!playground || !buffer || !changed) return;
  changed = false;
  const length = playground.telemetryLength();
  const numbers = new Float64Array(buffer.byteLength === length * 8 ? buffer : new ArrayBuffer(length * 8));
  const buckets = playground.readTelemetry(numbers);
  const report = playground.report();
  buffer = undefined;
  post(
    {
      type: "frame",
      run,
      playing,
      sample: playground.sample(),
      buffer: numbers.buffer,
      buckets,
      reached,
      result: report && { report, explanation: playground.explanation() ?? "", digest: playground.digest() },
    },
    [numbers.buffer],
  );
}

function play() {
  if (!playground || playing || playground.isFinished()) return;
  playing = true;
  restart();
  changed = true;
  plan(true);
}

function pause() {
  playing = false;
  // A slice may have stopped among the events of one instant: a pause never shows half an instant.
  while (playground && !playground.advanceTo(playground.now(), EVENTS_PER_CALL));
  changed = true;
}

/** @param {Command} command */
function obey(command) {
  switch (command.type) {
    case "load":
      playing = false;
      playground?.free();
      playground = new Playground(command.scenario, command.seed);
      run = command.run;
      restart();
      changed = true;
      break;
    case "play":
      play();
      break;
    case "pause":
      pause();
      break;
    case "speed":
      speed = command.speed;
      restart();
      break;
    case "capacity":
      playground?.setCapacity(command.provider, command.capacity);
      changed = true;
      break;
    case "drawn":
      buffer = command.buffer;
      break;
  }
  sendFrame();
}

self.onmessage = (event) => guarded(() => obey(event.data));

init().then(
  () => post({ type: "ready", scenarios: scenarios(), fields: Playground.telemetryFields(), stride: Playground.telemetryStride() }),
  (error) => post({ type: "failed", message: `the scheduler could not be loaded: ${error}` }),
);
