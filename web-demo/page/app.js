// @ts-check
// The page: hands what a person does to the worker, and shows what the worker sends. It decides nothing about
// scheduling and keeps no figures of its own.
import { count, percent, span, times as speedText } from "./format.js";
import { ProviderPanel, part } from "./provider-panel.js";

/** @typedef {import("./messages").Command} Command */
/** @typedef {import("./messages").Frame} Frame */
/** @typedef {import("./messages").Report} Report */
/** @typedef {import("./pkg/tidegate_playground.js").Sample} Sample */
/** @typedef {import("./pkg/tidegate_playground.js").ScenarioInfo} ScenarioInfo */
/** @typedef {import("./pkg/tidegate_playground.js").TelemetryField} TelemetryField */
/** @typedef {"loading" | "ready" | "playing" | "paused" | "finished" | "failed"} Phase */

/** @type {Record<Phase, string>} */
const PHASES = { loading: "Loading", ready: "Ready", playing: "Running", paused: "Paused", finished: "Finished", failed: "Stopped" };

/** @param {string} id */
const element = (id) => part(document, `#${id}`, HTMLElement);
const scenario = part(document, "#scenario", HTMLSelectElement);
const seed = part(document, "#seed", HTMLInputElement);
const play = part(document, "#play", HTMLButtonElement);
const reset = part(document, "#reset", HTMLButtonElement);
const speed = part(document, "#speed", HTMLInputElement);
const providers = element("providers");

const worker = new Worker("worker.js", { type: "module", name: "scheduler" });

/** @type {ScenarioInfo[]} */
let scenarios = [];
/** @type {TelemetryField[]} */
let fields = [];
let stride = 0;
/** @type {ProviderPanel[]} */
let panels = [];
/** @type {Phase} */
let phase = "loading";
let run = 0;
/** The newest frame that is not drawn yet. @type {Frame | undefined} */
let pending;

/** @param {Command} command @param {Transferable[]} [transfer] */
function tell(command, transfer = []) {
  worker.postMessage(command, { transfer });
}

/** @param {Phase} next */
function enter(next) {
  if (phase === next) return;
  phase = next;
  const pill = element("phase");
  pill.textContent = PHASES[next];
  pill.dataset.phase = next;
  const running = next === "playing";
  element("play-label").textContent = running ? "Pause" : next === "finished" ? "Play again" : "Play";
  play.dataset.playing = String(running);
}

function load() {
  const chosen = scenarios.find((one) => one.name === scenario.value);
  if (!chosen || !seed.reportValidity()) return;
  run += 1;
  element("description").textContent = chosen.description;
  element("finish").hidden = true;
  element("failure").hidden = true;
  tell({ type: "load", run, scenario: chosen.name, seed: seed.valueAsNumber });
  enter("ready");
}

function toggle() {
  if (phase === "playing") {
    tell({ type: "pause" });
    enter("paused");
    return;
  }
  if (phase === "finished" || phase === "failed") load();
  tell({ type: "play" });
  // At once, not with the next frame: a second press must mean the opposite.
  enter("playing");
}

function setSpeed() {
  const value = 10 ** speed.valueAsNumber;
  element("speed-value").textContent = speedText(value);
  speed.setAttribute("aria-valuetext", `${speedText(value)} real time`);
  tell({ type: "speed", speed: value });
}

/** @param {string} id @param {number} value @param {string} [text] */
function figure(id, value, text = count(value)) {
  const target = element(id);
  target.textContent = text;
  target.dataset.value = String(value);
}

/** @param {Frame} frame */
function draw(frame) {
  const { sample } = frame;
  figure("rows-done", sample.rows_done);
  figure("rows-total", sample.rows_total);
  element("rows-share").textContent = percent(sample.rows_done, sample.rows_total);
  drawProgress(sample);
  figure("virtual-time", sample.at, span(sample.at / 1e6));
  figure("running", sample.running);
  figure("queue-depth", sample.queue_depth);
  figure("rows-dropped", sample.rows_dropped);
  figure("refused", sample.providers.reduce((sum, provider) => sum + provider.refused, 0));
  drawProviders(frame);
  element("phase").dataset.shown = frame.playing ? "moving" : "still";
  const lag = element("lag");
  lag.hidden = frame.reached === undefined || !frame.playing;
  if (frame.reached !== undefined) lag.textContent = `This machine reaches ${speedText(frame.reached)} on this scenario.`;
  if (frame.result) finish(frame, frame.result);
}

/** @param {Sample} sample */
function drawProgress({ rows_done, rows_dropped, rows_total }) {
  const bar = element("progress");
  bar.setAttribute("aria-valuemax", String(rows_total));
  bar.setAttribute("aria-valuenow", String(rows_done));
  for (const [kind, rows] of /** @type {const} */ ([["done", rows_done], ["dropped", rows_dropped]])) {
    part(bar, `.${kind}`, HTMLElement).style.width = `${(100 * rows) / Math.max(1, rows_total)}%`;
  }
}

/** @param {Frame} frame */
function drawProviders({ sample, buffer, buckets }) {
  const names = sample.providers.map((provider) => provider.name);
  if (panels.map((panel) => panel.element.dataset.provider).join("\n") !== names.join("\n")) {
    replacePanels(names);
  }
  const numbers = new Float64Array(buffer);
  // Copies: the buffer goes back to the worker, and the charts may have to draw again before the next frame.
  /** @param {number} index */
  const column = (index) => numbers.slice(index * stride, index * stride + buckets);
  const times = column(0);
  sample.providers.forEach((provider, index) => {
    const first = 1 + index * fields.length;
    const columns = /** @type {import("./tide-chart.js").Columns} */ (
      Object.fromEntries(fields.map((field, offset) => [field, column(first + offset)]))
    );
    panels[index]?.show(provider, sample.at, times, columns);
  });
}

/** @param {string[]} names */
function replacePanels(names) {
  panels.forEach((panel) => panel.destroy());
  panels = names.map((name) => new ProviderPanel(name, providers, (capacity) => tell({ type: "capacity", provider: name, capacity })));
}

/** @param {Frame} frame @param {NonNullable<Frame["result"]>} result */
function finish({ sample }, { report, explanation, digest }) {
  const { reason } = report.stop;
  element("finish-title").textContent = reason === "completed" ? "Run finished" : `Run stopped: ${explanation}`;
  const refused = sample.providers.reduce((sum, provider) => sum + provider.refused, 0);
  element("finish-text").textContent =
    `${count(sample.rows_done)} of ${count(sample.rows_total)} rows in ${span(sample.at / 1e6)} of virtual time; ` +
    `${count(sample.rows_dropped)} dropped. Providers pushed back (429) ${count(refused)} times.`;
  element("digest").textContent = digest;
  element("finish").dataset.stop = reason;
  element("finish").hidden = false;
  enter("finished");
}

/** @param {string} message */
function fail(message) {
  element("failure-text").textContent = `${message}.`;
  element("failure").hidden = false;
  enter("failed");
}

function drawPending() {
  const frame = pending;
  pending = undefined;
  if (!frame) return;
  if (frame.run === run) draw(frame);
  tell({ type: "drawn", buffer: frame.buffer }, [frame.buffer]);
}

/** @param {Extract<Report, { type: "ready" }>} ready */
function begin(ready) {
  ({ scenarios, fields, stride } = ready);
  scenario.replaceChildren(...scenarios.map((one) => new Option(one.title, one.name)));
  for (const control of [scenario, seed, play, reset, speed]) control.disabled = false;
  setSpeed();
  load();
}

worker.onmessage = (/** @type {MessageEvent<Report>} */ { data }) => {
  if (data.type === "ready") begin(data);
  else if (data.type === "failed") fail(data.message);
  else {
    pending = data;
    requestAnimationFrame(drawPending);
  }
};
worker.onerror = (/** @type {ErrorEvent} */ event) => fail(`The scheduler's worker failed: ${event.message || "it could not be started"}`);

scenario.addEventListener("change", load);
seed.addEventListener("change", load);
play.addEventListener("click", toggle);
reset.addEventListener("click", load);
element("again").addEventListener("click", toggle);
speed.addEventListener("input", setSpeed);
document.addEventListener("keydown", (event) => {
  // Space already means something on a button and in a field.
  const busy = event.target instanceof Element && event.target.closest("button, select, input[type=number]");
  if (event.key !== " " || event.repeat || busy || play.disabled) return;
  event.preventDefault();
  toggle();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => panels.forEach((panel) => panel.chart.recolour()));
