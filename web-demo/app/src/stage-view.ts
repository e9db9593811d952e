// The stages: one for each run, fed with the worker's pictures.
import { byId, say } from "./dom.ts";
import { count, span } from "./format.ts";
import { Axes } from "./stage/axes.ts";
import { Stage } from "./stage/stage.ts";
import type { Frame, Picture, Side } from "./messages.ts";
import type { Session } from "./session.ts";
import type { Columns, On } from "./stage/view.ts";
import type { WhyPanel } from "./why.ts";

export class Stages {
  #session;
  #why;
  #stages: Stage[] = [];
  /** Where the stages of two runs go. */
  #halves = [...document.querySelectorAll(".half")];

  constructor(session: Session, why: WhyPanel) {
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
      const side = index as Side;
      const name = (provider: number) => layout.providers[provider]?.name ?? "";
      const on: On = {
        why: (about) => this.#why.open(side, about),
        capacity: (provider, slots) => void this.#session.change({ set: "capacity", model: name(provider), slots: slots ?? "schedule" }, side),
        hold: (groups) => this.#session.runner.tell((worker) => worker.hold(side, groups)),
        change: (what) => void this.#session.change(what, side),
      };
      return new Stage((parents[index] as HTMLElement), layout, on, axes);
    });
  }

  #show(frame: Frame) {
    frame.sides.forEach((picture, side) => this.#take(picture, side));
    for (const stage of this.#stages) stage.draw();
    if (this.#session.mode === "one" && frame.sides[0]) showFigures(frame.sides[0]);
  }

  #take(picture: Picture, side: number) {
    const layout = this.#session.layouts[side];
    if (!layout) return;
    const { fields, stride } = this.#session;
    const numbers = new Float64Array(picture.telemetry);
    const column = (index: number) => numbers.subarray(index * stride, index * stride + picture.buckets);
    this.#stages[side]?.take({
      sample: picture.sample,
      layout,
      times: column(0),
      columns: (provider) => Object.fromEntries(fields.map((field, offset) => [field, column(1 + provider * fields.length + offset)])) as Columns,
      lanes: new Float64Array(picture.lanes),
      lanesCount: picture.lanesCount,
      windowMs: picture.windowMs,
      changes: this.#session.changes[side] ?? [],
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
