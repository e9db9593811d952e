// @ts-check
// All that a run shows, from the outcome to its causes: rows, providers, pipeline, worker slots, queues, idle time.
import { make } from "./dom.js";
import { IdleSplit } from "./idle-split.js";
import { forgetColours } from "./palette.js";
import { PipelineGraph } from "./pipeline-graph.js";
import { QueueDepths } from "./queue-depths.js";
import { RowsBar } from "./rows-bar.js";
import { TidePanels } from "./tide-panels.js";
import { WorkerLanes } from "./worker-lanes.js";

/** @typedef {import("./view").Component} Component */
/** @typedef {import("./view").On} On */
/** @typedef {import("./view").View} View */
/** @typedef {import("../pkg/tidegate_playground.js").Layout} Layout */

export { IdleSplit, PipelineGraph, QueueDepths, RowsBar, TidePanels, WorkerLanes };

/** @implements {Component} */
export class Stage {
  element = make("div", { class: "stage" });
  /** @type {Component[]} */
  #parts;

  /** @param {HTMLElement} parent @param {Layout} layout @param {On} on */
  constructor(parent, layout, on) {
    // First into the document: some parts are made in the size they are shown in.
    parent.append(this.element);
    const first = [RowsBar, TidePanels, PipelineGraph, WorkerLanes].map((Part) => new Part(this.element, layout, on));
    const pair = make("div", { class: "stage-pair" });
    this.element.append(pair);
    this.#parts = [...first, new QueueDepths(pair, layout, on), new IdleSplit(pair, layout, on)];
  }

  /** @param {View} view */
  show(view) {
    for (const part of this.#parts) part.show(view);
  }

  recolour() {
    forgetColours();
    for (const part of this.#parts) part.recolour();
  }

  destroy() {
    for (const part of this.#parts) part.destroy();
    this.element.remove();
  }
}
