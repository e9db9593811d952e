// @ts-check
// The stages: one for each run, fed with the worker's pictures.
import { byId, say } from "./dom.js";
import { count, span } from "./format.js";
import { Axes } from "./stage/axes.js";
import { Stage } from "./stage/stage.js";

/** @typedef {import("./messages").Frame} Frame */
/** @typedef {import("./messages").Picture} Picture */
/** @typedef {import("./messages").Side} Side */
/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./stage/view").Columns} Columns */
/** @typedef {import("./stage/view").On} On */
/** @typedef {import("./why.js").WhyPanel} WhyPanel */

export class Stages {
  #session;
  #why;
  /** @type {Stage[]} */
  #stages = [];
  /** Where the stages of two runs go. */
  #halves = [...document.querySelectorAll(".half")];

  /** @param {Session} session @param {WhyPanel} why */
  constructor(session, why) {
    this.#session = session;
    this.#why = why;
    session.on("loaded", () => this.#build());
    session.on("frame", (frame) => this.#show(frame));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#stages.forEach((stage) => stage.recolour()));
  }

  #build() {
    for (const stage of this.#stages) stage.destroy();
    const parents = this.#session.mode === "one" ? [byId("stage-parts")] : this.#halves;
    const axes = new Axes();
    this.#stages = this.#session.layouts.map((layout, index) => {
      const side = /** @type {Side} */ (index);
      const name = (/** @type {number} */ provider) => layout.providers[provider]?.name ?? "";
      /** @type {On} */
      const on = {
        why: (about) => this.#why.open(side, about),
        capacity: (provider, slots) => void this.#session.change({ set: "capacity", model: name(provider), slots: slots ?? "schedule" }, side),
        hold: (groups) => this.#session.runner.tell({ type: "hold", side, groups }),
        change: (what) => void this.#session.change(what, side),
      };
      return new Stage(/** @type {HTMLElement} */ (parents[index]), layout, on, axes);
    });
  }

  /** @param {Frame} frame */
  #show(frame) {
    frame.sides.forEach((picture, side) => this.#take(picture, side));
    for (const stage of this.#stages) stage.draw();
    if (this.#session.mode === "one" && frame.sides[0]) showFigures(frame.sides[0]);
  }

  /** @param {Picture} picture @param {number} side */
  #take(picture, side) {
    const layout = this.#session.layouts[side];
    if (!layout) return;
    const { fields, stride } = this.#session;
    const numbers = new Float64Array(picture.telemetry);
    /** @param {number} index */
    const column = (index) => numbers.subarray(index * stride, index * stride + picture.buckets);
    this.#stages[side]?.take({
      sample: picture.sample,
      layout,
      times: column(0),
      columns: (provider) => /** @type {Columns} */ (Object.fromEntries(fields.map((field, offset) => [field, column(1 + provider * fields.length + offset)]))),
      lanes: new Float64Array(picture.lanes),
      lanesCount: picture.lanesCount,
      windowMs: picture.windowMs,
      changes: this.#session.changes[side] ?? [],
    });
  }
}

/** @param {string} id @param {number} value @param {string} [text] */
function figure(id, value, text = count(value)) {
  const target = byId(id);
  say(target, text);
  target.dataset.value = String(value);
}

/** @param {Picture} picture */
function showFigures({ sample }) {
  figure("virtual-time", sample.at, span(sample.at / 1e6));
  figure("steps", sample.steps);
  figure("running", sample.running);
  figure("queue-depth", sample.queue_depth);
  figure("rows-dropped", sample.rows_dropped);
  figure("refused", sample.providers.reduce((sum, provider) => sum + provider.refused, 0));
}
