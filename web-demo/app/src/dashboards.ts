// The dashboards: one for each run, fed with the worker's pictures.
import { byId, say } from "./dom.ts";
import { count, span } from "./format.ts";
import { Axes } from "./dashboard/axes.ts";
import { Dashboard } from "./dashboard/dashboard.ts";
import { Drags } from "./drags.ts";
import type { Frame, Picture, Side } from "./messages.ts";
import type { Simulation } from "./simulation.ts";
import type { Columns, On } from "./dashboard/view.ts";
import type { Explain } from "./explain/explain.svelte.ts";

export class Dashboards {
  #simulation;
  #explain;
  #dashboards: Dashboard[] = [];
  /** Each mode finds its changes again. */
  #drags = { one: new Drags(), two: new Drags() };
  /** Where the dashboards of two runs go. */
  #halves = [...document.querySelectorAll(".half")];

  constructor(simulation: Simulation, explain: Explain) {
    this.#simulation = simulation;
    this.#explain = explain;
    simulation.on("loaded", () => {
      if (simulation.changes.every((changes) => changes.length === 0)) this.#drags[simulation.mode].clear();
      this.#build();
    });
    simulation.on("changed", ({ what, side }) => this.#drags[simulation.mode].add(what, simulation.changes, side));
    simulation.on("frame", (frame) => this.#show(frame));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#dashboards.forEach((dashboard) => dashboard.recolour()));
  }

  #build() {
    for (const dashboard of this.#dashboards) dashboard.destroy();
    const parents = this.#simulation.mode === "one" ? [byId("dashboard")] : this.#halves;
    const axes = new Axes();
    this.#dashboards = this.#simulation.layouts.map((layout, index) => {
      const side = index as Side;
      const name = (provider: number) => layout.providers[provider]?.name ?? "";
      const on: On = {
        why: (about, past) => this.#explain.open(side, about, past),
        past: (ms) => this.#simulation.showPast(side, ms),
        capacity: (provider, slots) => void this.#simulation.change({ set: "capacity", model: name(provider), slots: slots ?? "schedule" }, side),
        hold: (groups) => this.#simulation.runner.send((worker) => worker.hold(side, groups)),
        change: (what) => void this.#simulation.change(what, side),
      };
      return new Dashboard((parents[index] as HTMLElement), layout, on, axes);
    });
  }

  #show(frame: Frame) {
    frame.sides.forEach((picture, side) => this.#take(picture, side));
    for (const dashboard of this.#dashboards) dashboard.draw();
    if (this.#simulation.mode === "one" && frame.sides[0]) showFigures(frame.sides[0]);
  }

  #take(picture: Picture, side: number) {
    const layout = this.#simulation.layouts[side];
    if (!layout) return;
    const { fields, stride } = this.#simulation;
    const numbers = new Float64Array(picture.telemetry);
    const column = (index: number) => numbers.subarray(index * stride, index * stride + picture.buckets);
    this.#dashboards[side]?.take({
      sample: picture.sample,
      layout,
      models: this.#simulation.runs[side]?.models,
      times: column(0),
      columns: (provider) => Object.fromEntries(fields.map((field, offset) => [field, column(1 + provider * fields.length + offset)])) as Columns,
      lanes: new Float64Array(picture.lanes),
      lanesCount: picture.lanesCount,
      windowMs: this.#simulation.windowMs,
      lanesMs: picture.windowMs,
      changes: this.#drags[this.#simulation.mode].marked(this.#simulation.changes[side] ?? [], side),
    });
  }
}

function figure(id: string, value: number, text: string = count(value)) {
  const target = byId(id);
  say(target, text);
  target.dataset.value = String(value);
}

function showFigures({ sample }: Picture) {
  figure("virtual-time", sample.at, span(sample.at / 1e6));
  figure("steps", sample.steps);
  figure("running", sample.running);
  figure("queue-depth", sample.queue_depth);
  figure("rows-dropped", sample.rows_dropped);
  figure("refused", sample.providers.reduce((sum, provider) => sum + provider.refused, 0));
}
