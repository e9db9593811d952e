// What the chart shows: the last half minute.
import type { SharingSample } from "../pkg/tidegate_machines.js";
import { sharesOf } from "./texts.ts";

/** How much of the past is shown, in virtual s. */
export const WINDOW_S = 30;

/** Figures over time: times in virtual s, calls in flight, the sum of the shares, and the capacity. */
export class History {
  columns: [number[], number[], number[], number[]] = [[], [], [], []];

  add(sample: SharingSample) {
    const [times] = this.columns;
    const values = [sample.at / 1e9, sample.in_flight, sharesOf(sample), sample.capacity];
    // A change adds no time: the newest figures of an instant count.
    if (times.at(-1) === values[0]) for (const column of this.columns) column.pop();
    this.columns.forEach((column, index) => column.push(values[index] ?? 0));
    // The oldest go together, so that this costs little for each point.
    const old = times.findIndex((time) => time >= (values[0] ?? 0) - WINDOW_S);
    if (old > 100) for (const column of this.columns) column.splice(0, old - 1);
  }

  clear() {
    for (const column of this.columns) column.length = 0;
  }
}
