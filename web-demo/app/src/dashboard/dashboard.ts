// All that a run shows, from the outcome to its causes: rows, providers, pipeline, worker slots, queues, idle time.
import { Axes } from "./axes.ts";
import { make } from "./dom.ts";
import { IdleSplit } from "./idle-split.ts";
import { forgetColours } from "./palette.ts";
import { PipelineGraph } from "./pipeline-graph.ts";
import { QueueDepths } from "./queue-depths.ts";
import { RowsBar } from "./rows-bar.ts";
import { ProviderPanels } from "./provider-panels.ts";
import { WorkerLanes } from "./worker-lanes.ts";
import type { Component, On, View } from "./view.ts";
import type { Panel } from "./panel.ts";
import type { Layout } from "../pkg/tidegate_playground.js";

export { IdleSplit, PipelineGraph, QueueDepths, RowsBar, ProviderPanels, WorkerLanes };

/** How long one frame of the display may draw, in ms, and how long when frames come late. */
const BUDGET_MS = 6;
const LATE_BUDGET_MS = 2;
/** Frames further apart than this come late. Further apart than the second, they are single pictures. */
const LATE_MS = 24;
const SINGLE_MS = 400;

export class Dashboard implements Component {
  /** `data-fresh` says whether all parts show the last view. */
  element = make("div", { class: "dashboard", "data-fresh": "true" });
  #parts: Panel[];
  /** When each was drawn last. */
  #partsDrawnAt;
  /** The part that is drawn first in the next frame. */
  #next = 0;
  #frame = 0;
  #drawnAt = Number.NEGATIVE_INFINITY;

  /** @param axes of the charts and queues, if a dashboard beside this one has the same */
  constructor(parent: HTMLElement, layout: Layout, on: On, axes: Axes = new Axes()) {
    // First into the document: some parts are made in the size they are shown in.
    parent.append(this.element);
    const [rows, tides] = [new RowsBar(this.element, layout, on), new ProviderPanels(this.element, layout, on, axes)];
    const [graph, lanes] = [new PipelineGraph(this.element, layout, on), new WorkerLanes(this.element, layout, on)];
    const pair = make("div", { class: "dashboard-pair" });
    this.element.append(pair);
    this.#parts = [rows, tides, graph, lanes, new QueueDepths(pair, layout, on, axes), new IdleSplit(pair, layout, on)];
    this.#partsDrawnAt = this.#parts.map(() => Number.NEGATIVE_INFINITY);
  }

  /** Shows a view: all of it at once if that is quick, else part by part over the next frames, in turn. */
  show(view: View) {
    this.take(view);
    this.draw();
  }

  /**
   * Takes a view over without drawing it; `draw` does. Two dashboards with the same axes both have to know their views
   * before either is drawn.
   */
  take(view: View) {
    for (const part of this.#parts) part.take(view);
  }

  recolour() {
    forgetColours();
    for (const part of this.#parts) part.recolour();
  }

  destroy() {
    cancelAnimationFrame(this.#frame);
    for (const part of this.#parts) part.destroy();
    this.element.remove();
  }

  /** Draws the view taken last, or a part of it. */
  draw() {
    cancelAnimationFrame(this.#frame);
    const now = performance.now();
    const pause = now - this.#drawnAt;
    // The time that painting takes after the script is not ours to measure, but it shows in the distance of frames.
    const until = now + (pause > LATE_MS && pause < SINGLE_MS ? LATE_BUDGET_MS : BUDGET_MS);
    this.#drawnAt = now;
    for (let tries = this.#parts.length; tries > 0; tries -= 1) {
      const index = this.#next;
      const part = this.#parts[index];
      this.#next = (index + 1) % this.#parts.length;
      if (!part?.isStale || now - (this.#partsDrawnAt[index] ?? 0) < part.restMs) continue;
      part.draw(until);
      this.#partsDrawnAt[index] = now;
      if (performance.now() >= until) break;
    }
    this.#turn();
  }

  #turn() {
    const isFresh = !this.#parts.some((part) => part.isStale);
    const text = String(isFresh);
    if (this.element.dataset.fresh !== text) this.element.dataset.fresh = text;
    if (!isFresh) this.#frame = requestAnimationFrame(() => this.draw());
  }
}
