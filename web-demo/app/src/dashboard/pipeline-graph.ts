// The pipeline as a graph: a node per column with its live counts and a bar of what has become of its tasks.
// The nodes are drawn in slices: a wide table has many figures.
import { flushSync } from "svelte";
import { MOST_COLUMNS } from "../shown.ts";
import { Latest } from "./latest.svelte.ts";
import { Panel, READABLE_MS } from "./panel.ts";
import PipelineGraphView from "./PipelineGraph.svelte";
import type { Sample } from "./panel.ts";
import type { ColumnSample, Layout } from "../pkg/tidegate_playground.js";
import type { On, View } from "./view.ts";

/** How many nodes are drawn in one frame. */
const SLICE = 16;

/** What a node shows. */
export interface NodeShown {
  column: ColumnSample;
  /** How many tasks the column has in all, as far as that is known. */
  tasks: number;
}

export class PipelineGraph extends Panel {
  #layout;
  #nodes: Latest<NodeShown>[];
  #sample: Sample | undefined;
  /** The node that is drawn next, and how many do not show the sample yet. */
  #next = 0;
  #left = 0;

  constructor(parent: Element, layout: Layout, on: On) {
    super();
    this.#layout = layout;
    this.#nodes = layout.columns.slice(0, MOST_COLUMNS).map(() => new Latest());
    this.restMs = READABLE_MS / Math.max(1, Math.ceil(this.#nodes.length / SLICE));
    this.mount(PipelineGraphView, parent, { layout, nodes: this.#nodes, on });
  }

  /** @override */
  take({ sample }: View) {
    this.#sample = sample;
    this.#left = this.#nodes.length;
    this.isStale = true;
  }

  /** @override */
  draw() {
    const sample = this.#sample;
    if (!sample) return;
    for (let most = SLICE; most > 0 && this.#left > 0; most -= 1) {
      const column = sample.columns[this.#next];
      const node = this.#nodes[this.#next];
      const perRow = this.#layout.columns[this.#next]?.strategy === "cell";
      if (column && node) node.value = { column, tasks: perRow ? sample.rows_total : sample.row_groups.total };
      this.#next = (this.#next + 1) % this.#nodes.length;
      this.#left -= 1;
    }
    flushSync();
    this.isStale = this.#left > 0;
  }
}
