// All that a run shows, from the outcome to its causes: rows, providers, pipeline, worker slots, queues, idle
// time.
import { Axes } from "./axes.ts";
import IdleSplit from "./IdleSplit.svelte";
import { forgetColours } from "./palette.ts";
import { SamplePanel } from "./panel.ts";
import { PipelineGraph } from "./pipeline-graph.ts";
import { ProviderPanels } from "./provider-panels.svelte.ts";
import { QueueDepths } from "./queue-depths.ts";
import RowsBar from "./RowsBar.svelte";
import { WorkerLanes } from "./worker-lanes.svelte.ts";
import type { On, View } from "./view.ts";
import type { Panel } from "./panel.ts";
import type { Layout } from "../pkg/tidegate_playground.js";

/** How long one frame of the display may draw, in ms, and how long when frames come late. */
const BUDGET_MS = 6;
const LATE_BUDGET_MS = 2;
/** Frames further apart than this come late. Further apart than the second, they are single pictures. */
const LATE_MS = 24;
const SINGLE_MS = 400;

export class Dashboard {
  /** `data-fresh` says whether all parts show the last view. */
  #element = document.createElement("div");
  #parts: Panel[];
  /** When each was drawn last. */
  #partsDrawnAt;
  /** The part that is drawn first in the next frame. */
  #next = 0;
  #frame = 0;
  #drawnAt = Number.NEGATIVE_INFINITY;

  /** @param axes of the charts and queues, if a dashboard beside this one has the same */
  constructor(parent: HTMLElement, layout: Layout, on: On, axes: Axes = new Axes()) {
    const element = this.#element;
    element.className = "dashboard";
    element.dataset.fresh = "true";
    // First into the document: some parts are made in the size they are shown in.
    parent.append(element);
    const [rows, providers] = [new SamplePanel(RowsBar, element, layout, on), new ProviderPanels(element, layout, on, axes)];
    const [graph, lanes] = [new PipelineGraph(element, layout, on), new WorkerLanes(element, layout, on)];
    const pair = document.createElement("div");
    pair.className = "dashboard-pair";
    element.append(pair);
    this.#parts = [rows, providers, graph, lanes, new QueueDepths(pair, layout, on, axes), new SamplePanel(IdleSplit, pair, layout, on)];
    this.#partsDrawnAt = this.#parts.map(() => Number.NEGATIVE_INFINITY);
  }

  /** Shows a view: all of it at once if that is quick, else part by part over the next frames, in turn. */
  show(view: View) {
    this.take(view);
    this.draw();
  }

  /**
   * Takes a view over without drawing it; `draw` does. Two dashboards with the same axes both have to know
   * their views before either is drawn.
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
    this.#element.remove();
  }

  /** Draws the view taken last, or a part of it. */
  draw() {
    cancelAnimationFrame(this.#frame);
    const now = performance.now();
    const pause = now - this.#drawnAt;
    // The time that painting takes after the script is not ours to measure, but it shows in the distance of
    // frames.
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
    if (this.#element.dataset.fresh !== text) this.#element.dataset.fresh = text;
    if (!isFresh) this.#frame = requestAnimationFrame(() => this.draw());
  }
}
