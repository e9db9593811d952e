// The chart below the machines: calls in flight at the provider as an area, the sum of the shares as a line,
// the capacity as a dashed line.
import { colour, forgetColours } from "../dashboard/palette.ts";
import uPlot from "../dashboard/uplot.ts";
import type { Plot, PlotOptions } from "../dashboard/uplot.ts";
import { count } from "../format.ts";
import { WINDOW_S } from "./history.ts";
import type { History } from "./history.ts";

/** The value axis is never lower than this. */
const LOWEST = 14;

/** Draws the history into `parent`. Returns what draws it again, and what ends it. */
export function drawHistory(parent: HTMLElement, history: History) {
  const axis = { stroke: () => colour("--muted"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { show: false }, font: "12px sans-serif" };
  const paths = uPlot.paths.stepped?.({ align: 1 });
  const level = { width: 2, points: { show: false }, ...(paths && { paths }) };
  const options: PlotOptions = {
    width: parent.clientWidth,
    height: parent.clientHeight,
    padding: [8, 12, 0, 0],
    legend: { show: false },
    cursor: { show: false },
    scales: {
      x: { time: false, range: () => stretch(history) },
      y: { range: (_, __, most) => [0, Math.max(LOWEST, Math.ceil(most * 1.1))] },
    },
    axes: [
      { ...axis, size: 26, space: 60, values: (_, ticks) => ticks.map((at) => `${at} s`) },
      { ...axis, size: 34, space: 24, incrs: [1, 2, 5, 10, 20], values: (_, ticks) => ticks.map(count) },
    ],
    series: [
      {},
      { ...level, width: 1.5, stroke: () => colour("--in-flight"), fill: () => colour("--water") },
      { ...level, stroke: () => colour("--limit") },
      { ...level, stroke: () => colour("--capacity"), dash: [7, 5] },
    ],
  };
  const plot: Plot = new uPlot(options, history.columns, parent);
  const observer = new ResizeObserver(() => plot.setSize({ width: parent.clientWidth, height: parent.clientHeight }));
  observer.observe(parent);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const recolour = () => {
    forgetColours();
    plot.redraw(false, true);
  };
  scheme.addEventListener("change", recolour);
  return {
    draw: () => plot.setData(history.columns),
    destroy: () => {
      observer.disconnect();
      scheme.removeEventListener("change", recolour);
      plot.destroy();
    },
  };
}

/** The stretch of time that is shown, in virtual s. */
function stretch({ columns: [times] }: History): [number, number] {
  const end = Math.max(WINDOW_S, times.at(-1) ?? 0);
  return [end - WINDOW_S, end];
}
