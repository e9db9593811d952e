// The pipeline as a graph: a node per column with its live counts and a bar of what has become of its tasks.
import { MOST_COLUMNS } from "../shown.ts";
import { Figure, Flag, make, section, shownOf, StackedBar, explainButton } from "./dom.ts";
import { layOut } from "./graph-layout.ts";
import { columnColour } from "./palette.ts";
import { READABLE_MS, SamplePanel } from "./panel.ts";
import { brief } from "./labels.ts";
import type { On, View } from "./view.ts";
import type { Sample } from "./panel.ts";
import type { ColumnSample, Layout, LayoutColumn } from "../pkg/tidegate_playground.js";

const SVG = "http://www.w3.org/2000/svg";

/** What a column's bar is made of, from the left: done, skipped, failed or dropped, calling or working, waiting, queued. */
const PARTS = 6;
/** So many of the columns that one needs are named. */
const TOLD = 5;
/** How many nodes are drawn in one frame. */
const SLICE = 16;
/** The counts that are always shown, by whether the column calls a model. */
const COUNTS = {
  model: ["ready", "calling", "waiting", "done"] as const,
  local: ["ready", "local", "done"] as const,
};
/** The counts that are shown once there are any. */
const NOTES = [
  ["local", "at local work"],
  ["failed", "failed"],
  ["dropped", "dropped"],
  ["skipped", "skipped"],
] as const;
const WORDS: Record<string, string> = { ready: "queued", calling: "calling", waiting: "waiting", local: "working", done: "done" };

class Node {
  element;
  #figures: [keyof ColumnSample, Figure][] = [];
  #notes: [keyof ColumnSample, Flag][] = [];
  #bar = new StackedBar("column-stack", PARTS);
  #column;
  #values = [0, 0, 0, 0, 0, 0];

  constructor(layout: Layout, index: number, on: On) {
    const column = layout.columns[index] as LayoutColumn;
    this.#column = column;
    const model = column.model === null ? undefined : layout.providers[column.model]?.name;
    const needs = column.after.slice(0, TOLD).map((one) => layout.columns[one]?.name);
    if (column.after.length > TOLD) needs.push(`${column.after.length - TOLD} more`);
    this.element = explainButton(
      "node",
      () => on.why({ column: index }),
      make("span", { class: "node-name" }, make("span", { class: "dot", "aria-hidden": "true" }), make("strong", {}, column.name)),
      make("span", { class: "node-kind soft" }, model === undefined ? "local work" : `calls ${model}`, ordinal(column)),
      needs.length > 0 && make("span", { class: "visually-hidden" }, ` after ${needs.join(", ")} `),
      this.#bar.element,
      make("span", { class: "node-counts" }, ...this.#counts(model !== undefined)),
      make("span", { class: "node-notes" }, ...this.#noted(model !== undefined)),
    );
    this.element.dataset.column = column.name;
    this.element.title = `${column.name}: why?`;
    this.element.style.setProperty("--column", columnColour(index));
  }

  #counts(calls: boolean) {
    return (calls ? COUNTS.model : COUNTS.local).map((field) => {
      const figure = new Figure(field, brief);
      this.#figures.push([field, figure]);
      return make("span", { class: `count ${field}` }, figure.element, make("span", { class: "soft" }, ` ${WORDS[field]} `));
    });
  }

  #noted(calls: boolean) {
    return NOTES.slice(calls ? 0 : 1).map(([field, words]) => {
      const figure = new Figure(field);
      this.#figures.push([field, figure]);
      const note = make("span", { class: `note ${field}` }, figure.element, ` ${words} `);
      this.#notes.push([field, new Flag(note, "any")]);
      return note;
    });
  }

  show(sample: ColumnSample, { rows_total, row_groups }: View["sample"]) {
    for (const [field, figure] of this.#figures) figure.set(sample[field]);
    for (const [field, flag] of this.#notes) flag.set(sample[field] > 0);
    const values = this.#values;
    values[0] = sample.done;
    values[1] = sample.skipped;
    values[2] = sample.failed + sample.dropped;
    values[3] = sample.calling + sample.local;
    values[4] = sample.waiting;
    values[5] = sample.ready;
    const known = values.reduce((sum, value) => sum + value, 0);
    this.#bar.show(values, Math.max(known, this.#column.strategy === "cell" ? rows_total : row_groups.total));
  }
}

/** What a column's task is made for, where that is not a row. */
function ordinal({ strategy }: LayoutColumn) {
  if (strategy === "cell") return "";
  return strategy === "full_column" ? ", once complete" : ", per row group";
}

export class PipelineGraph extends SamplePanel {
  #nodes;
  #columns;
  #edges = document.createElementNS(SVG, "svg");
  #canvas;
  #resize;
  #room = 0;
  /** The node that is drawn next, and how many do not show the sample yet. */
  #next = 0;
  #left = 0;

  constructor(parent: HTMLElement, layout: Layout, on: On) {
    const { element } = section("pipeline", "Pipeline", "Each column of the table, what it needs, and where its tasks are now");
    super(element, parent);
    // Every column comes after those it needs, so the first ones are a graph too.
    this.#columns = layout.columns.slice(0, MOST_COLUMNS);
    this.#nodes = this.#columns.map((_, index) => new Node(layout, index, on));
    this.restMs = READABLE_MS / Math.max(1, Math.ceil(this.#nodes.length / SLICE));
    this.#edges.setAttribute("aria-hidden", "true");
    this.#edges.setAttribute("class", "edges");
    this.#canvas = make("div", { class: "graph" });
    this.#canvas.append(this.#edges);
    const scroller = make("div", { class: "graph-scroller", tabindex: "0", role: "group", "aria-label": "Columns of the pipeline" }, this.#canvas);
    element.append(scroller, key());
    const rest = shownOf(this.#nodes.length, layout.columns.length, "columns");
    if (rest) element.append(rest);
    this.#resize = new ResizeObserver(([entry]) => this.#layOut(entry?.contentRect.width ?? scroller.clientWidth));
    // It reports the first size, too, before anything is painted: asking for it here would lay the whole page out.
    this.#resize.observe(scroller);
  }

  /** @override */
  take(view: View) {
    super.take(view);
    this.#left = this.#nodes.length;
  }

  /**
   * In slices, the nodes in turn: a wide table has many figures.
   * @override
   */
  drawSample(sample: Sample, until: number) {
    for (let most = until === Number.POSITIVE_INFINITY ? this.#left : SLICE; most > 0 && this.#left > 0; most -= 1) {
      const column = sample.columns[this.#next];
      const node = this.#nodes[this.#next];
      if (column) node?.show(column, sample);
      // So are they laid out for the first time.
      if (node && !node.element.isConnected) this.#canvas.append(node.element);
      this.#next = (this.#next + 1) % this.#nodes.length;
      this.#left -= 1;
    }
    return this.#left > 0;
  }

  /** @override */
  destroy() {
    this.#resize.disconnect();
    super.destroy();
  }

  #layOut(room: number) {
    if (room === this.#room) return;
    this.#room = room;
    const { places, edges, width, height, isUpright } = layOut(this.#columns, room);
    this.#canvas.style.width = `${width}px`;
    this.#canvas.style.height = `${height}px`;
    this.#canvas.classList.toggle("upright", isUpright);
    this.#nodes.forEach(({ element }, index) => {
      element.style.left = `${places[index]?.left ?? 0}px`;
      element.style.top = `${places[index]?.top ?? 0}px`;
    });
    this.#edges.setAttribute("width", String(width));
    this.#edges.setAttribute("height", String(height));
    this.#edges.replaceChildren(
      ...edges.map((path) => {
        const line = document.createElementNS(SVG, "path");
        line.setAttribute("d", path);
        return line;
      }),
    );
  }
}

function key() {
  const parts = [
    ["done", "done"],
    ["calling", "calling or working"],
    ["waiting", "waiting for a call"],
    ["ready", "queued"],
    ["dropped", "failed or dropped"],
    ["skipped", "skipped"],
  ];
  const items = parts.map(([name, words]) => make("li", {}, make("span", { class: `swatch ${name}`, "aria-hidden": "true" }), words));
  return make("ul", { class: "legend", "aria-label": "How to read the bars" }, ...items);
}
