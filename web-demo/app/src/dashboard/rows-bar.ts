// Rows done, dropped and in all.
import { percent } from "../format.ts";
import { Figure, Flag, make, StackedBar, Text } from "./dom.ts";
import { SamplePanel } from "./panel.ts";
import type { Sample } from "./panel.ts";
import type { On } from "./view.ts";
import type { Layout } from "../pkg/tidegate_playground.js";

export class RowsBar extends SamplePanel {
  #done = new Figure("rows_done");
  #dropped = new Figure("rows_dropped");
  #total = new Figure("rows_total");
  #share = new Text(make("span", { class: "rows-share" }, "0 %"));
  #bar = new StackedBar("rows-stack", 2);
  #values = [0, 0];
  #progress;
  #hasDropped;
  #lastText = "";

  constructor(parent: HTMLElement, _layout: Layout, on: On) {
    super(make("section", { class: "panel dashboard-panel rows", "aria-label": "Rows" }), parent);
    this.#progress = make("div", { class: "rows-progress", role: "progressbar", "aria-label": "Rows done", "aria-valuemin": "0" }, this.#bar.element);
    const ask = make("button", { class: "explain-link", type: "button" }, "Which rows come next?");
    ask.addEventListener("click", () => on.why("row_groups"));
    this.element.append(
      make(
        "p",
        { class: "rows-line" },
        make("span", { class: "rows-count" }, make("strong", {}, this.#done.element), make("span", {}, " of ", this.#total.element, " rows done")),
        this.#share.element,
        make("span", { class: "rows-dropped" }, this.#dropped.element, " dropped"),
        ask,
      ),
      this.#progress,
    );
    this.#hasDropped = new Flag(this.element, "has-dropped");
  }

  /** @override */
  drawSample(sample: Sample) {
    const { rows_done: done, rows_dropped: dropped, rows_total: total } = sample;
    this.#done.set(done);
    this.#dropped.set(dropped);
    this.#total.set(total);
    this.#share.set(percent(done, total));
    this.#hasDropped.set(dropped > 0);
    this.#values[0] = done;
    this.#values[1] = dropped;
    this.#bar.show(this.#values, Math.max(1, total));
    const text = `${done} of ${total}`;
    if (text === this.#lastText) return false;
    this.#lastText = text;
    this.#progress.setAttribute("aria-valuenow", String(done));
    this.#progress.setAttribute("aria-valuemax", String(total));
    this.#progress.setAttribute("aria-valuetext", `${text} rows done, ${dropped} dropped`);
    return false;
  }
}
