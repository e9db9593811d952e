// The chart of one provider: calls in flight as an area, the limit as a line above it, the provider's true
// capacity as a dashed line; 429 answers as ticks along the top, cooldowns as shade, live changes as labelled
// lines.
import { count, mean, span, tick } from "../format.ts";
import { UNBOUNDED } from "../utilisation.ts";
import { colour } from "./palette.ts";
import uPlot from "./uplot.ts";
import { changeLabel } from "./labels.ts";
import type { Change, TelemetryField } from "../pkg/tidegate_playground.js";
import type { View } from "./view.ts";
import type { Plot } from "./uplot.ts";

/** The height of the tick for one 429, in CSS pixels, and the most that a tick grows to with their number. */
const TICK_HEIGHT = 9;
const MOST_TICK_HEIGHT = 40;
/**
 * Ticks closer together than this are counted as one burst, in CSS pixels. A burst of so many 429s says how
 * many.
 */
const BURST_DISTANCE = 6;
const LEAST_COUNTED = 10;
/** Changes closer together than this are marked once, in CSS pixels. */
const MARK_DISTANCE = 8;
/** Labels of changes stand in so many rows below the top, each this high in CSS pixels. */
const LABEL_ROWS = 3;
const LABEL_HEIGHT = 14;
/** The measures that a chart shows. */
const FIELDS: readonly TelemetryField[] = ["inFlight", "peak", "limit", "capacity", "refused", "cooling"];

/** Said while nothing is under the pointer. */
const HINT = "Point at the chart to read it";

/**
 * Ticks that are counted together: where the first and the last are, in canvas pixels, and how many 429s they
 * stand for.
 */
interface Burst {
  from: number;
  to: number;
  refusals: number;
}

/** A history kept from one frame to the next: the frame's own arrays go back to the worker. */
class History {
  length = 0;
  #times = new Float64Array(1024);
  #columns: Map<TelemetryField, Float64Array> = new Map(FIELDS.map((field) => [field, new Float64Array(1024)]));

  take(times: Float64Array, columns: Record<TelemetryField, Float64Array>) {
    this.length = times.length;
    if (times.length > this.#times.length) this.#grow(times.length);
    this.#times.set(times);
    for (const [field, kept] of this.#columns) kept.set(columns[field].subarray(0, times.length));
  }

  time(index: number) {
    return this.#times[index] ?? 0;
  }

  at(field: TelemetryField, index: number) {
    return this.#columns.get(field)?.[index] ?? 0;
  }

  /** What the chart library draws: the times, then a line each. */
  lines(): Float64Array[] {
    const lines = FIELDS.slice(0, 4).map((field) => this.#columns.get(field) ?? this.#times);
    return [this.#times, ...lines].map((line) => line.subarray(0, this.length));
  }

  #grow(length: number) {
    this.#times = new Float64Array(length);
    for (const field of FIELDS) this.#columns.set(field, new Float64Array(length));
  }
}

export class ProviderChart {
  /** Whether there is something new that is not drawn. */
  isStale = false;
  /** The stretch on the time axis, in ms. */
  #from = 0;
  #end = 1;
  #windowMs = 1;
  #history = new History();
  #changes: readonly Change[] = [];
  /** Where the room for labels ends in each of their rows, in canvas pixels. */
  #room = new Float64Array(LABEL_ROWS);
  #plot: Plot;
  #axes;
  #index;
  #provider;
  #say;
  #onLayout;
  #resize;

  /**
   * @param index the provider's
   * @param provider whose chart it is
   * @param parent where to draw
   * @param say is called with what is under the pointer
   * @param onLayout is called with where the plot lies within the parent, in CSS pixels
   */
  constructor(axes: import("./axes.ts").Axes, index: number, provider: string, parent: HTMLElement, say: (text: string) => void, onLayout: (top: number, height: number) => void) {
    this.#axes = axes;
    this.#index = index;
    this.#provider = provider;
    this.#say = say;
    this.#onLayout = onLayout;
    this.#plot = new uPlot(this.#options(parent), [[], [], [], [], []], parent);
    this.#resize = new ResizeObserver(() => {
      this.#plot.setSize({ width: parent.clientWidth, height: parent.clientHeight });
      this.#layOut();
    });
    this.#resize.observe(parent);
    this.#layOut();
  }

  /** The top of the value axis. */
  get top() {
    return this.#axes.top(this.#index);
  }

  /** Takes a history over; `draw` shows it. */
  take(view: View) {
    this.#history.take(view.times, view.columns(this.#index));
    this.#changes = view.changes ?? [];
    this.#windowMs = view.windowMs;
    this.#grow();
    this.isStale = true;
  }

  draw() {
    this.isStale = false;
    const { from, end } = this.#axes.stretch(this.#windowMs);
    this.#from = from;
    this.#end = end;
    const lines = this.#history.lines() as unknown as import("./uplot.ts").PlotData;
    // In a batch the library draws at once, so that the caller can see what it took.
    this.#plot.batch(() => this.#plot.setData(lines));
    this.#sayWhatIsUnderThePointer();
  }

  /** Draws again, in the present colours. */
  recolour() {
    this.#plot.redraw(false, true);
  }

  destroy() {
    this.#resize.disconnect();
    this.#plot.destroy();
  }

  #grow() {
    let most = 0;
    const history = this.#history;
    for (let index = 0; index < history.length; index += 1) {
      const limit = history.at("limit", index);
      const capacity = history.at("capacity", index);
      if (limit > most && limit < UNBOUNDED) most = limit;
      if (capacity > most && capacity < UNBOUNDED) most = capacity;
      most = Math.max(most, history.at("peak", index));
    }
    this.#axes.grow(this.#index, most);
  }

  #layOut() {
    const { top, height } = this.#plot.bbox;
    this.#onLayout(top / devicePixelRatio, height / devicePixelRatio);
  }

  #options(parent: HTMLElement): import("./uplot.ts").PlotOptions {
    const axis = {
      stroke: () => colour("--muted"),
      grid: { stroke: () => colour("--line"), width: 1 },
      ticks: { show: false },
      font: "12px sans-serif",
    };
    const paths = uPlot.paths.stepped?.({ align: 1 });
    const level = { width: 2, points: { show: false }, ...(paths && { paths }) };
    const widest = (values: string[] | null) => 14 + 7 * Math.max(2, ...(values ?? []).map((value) => value.length));
    return {
      width: parent.clientWidth,
      height: parent.clientHeight,
      padding: [14, 18, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false }, sync: { key: "tide" } },
      scales: {
        x: { time: false, range: () => [this.#from, this.#end] },
        y: { range: () => [0, this.top] },
      },
      axes: [
        { ...axis, size: 30, space: 70, values: (_, ticks) => ticks.map((at) => tick(at, (ticks[1] ?? at) - (ticks[0] ?? 0))) },
        {
          ...axis,
          size: (_, values) => widest(values),
          space: 28,
          incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000],
          values: (_, ticks) => ticks.map(count),
        },
      ],
      series: [
        {},
        { ...level, width: 1.5, stroke: () => colour("--in-flight"), fill: () => colour("--water") },
        { ...level, width: 1, stroke: () => colour("--peak") },
        { ...level, stroke: () => colour("--limit") },
        { ...level, stroke: () => colour("--capacity"), dash: [7, 5] },
      ],
      hooks: {
        drawClear: [(plot) => this.#shadeCooldowns(plot)],
        draw: [(plot) => this.#foretell(plot), (plot) => this.#markRefusals(plot), (plot) => this.#markChanges(plot)],
        setCursor: [() => this.#sayWhatIsUnderThePointer()],
      },
    };
  }

  /** Where an instant lies, in canvas pixels, kept within the plot. */
  #place(plot: Plot, ms: number) {
    const { left, width } = plot.bbox;
    const share = (ms - this.#from) / (this.#end - this.#from);
    return Math.round(left + width * Math.min(1, Math.max(0, share)));
  }

  /** The first bucket that is shown at all. */
  #first() {
    let index = 0;
    while (index + 1 < this.#history.length && this.#history.time(index + 1) < this.#from) index += 1;
    return index;
  }

  /** The end of a bucket, in ms. */
  #endOf(index: number) {
    return this.#history.time(Math.min(index + 1, this.#history.length - 1));
  }

  /** One rectangle for each stretch of neighbouring buckets, so that no seams show. */
  #shadeCooldowns(plot: Plot) {
    const { ctx, bbox } = plot;
    const { length } = this.#history;
    ctx.save();
    ctx.fillStyle = colour("--cooling");
    for (let index = this.#first(); index < length; index += 1) {
      const first = index;
      let sum = 0;
      while (index < length && this.#history.at("cooling", index) > 0) sum += this.#history.at("cooling", index++);
      if (index === first) continue;
      const left = this.#place(plot, this.#history.time(first));
      const right = this.#place(plot, this.#endOf(index - 1));
      ctx.globalAlpha = Math.min(1, sum / (index - first));
      ctx.fillRect(left, bbox.top, Math.max(1, right - left), bbox.height);
    }
    ctx.restore();
  }

  /** The present capacity, faintly up to the end of the axis: it will stay if nobody moves it. */
  #foretell(plot: Plot) {
    const last = this.#history.length - 1;
    const capacity = this.#history.at("capacity", last);
    if (last < 0 || capacity >= UNBOUNDED) return;
    const { ctx, bbox } = plot;
    const top = bbox.top + bbox.height * (1 - capacity / this.top);
    ctx.save();
    ctx.globalAlpha = 0.4;
    ctx.strokeStyle = colour("--capacity");
    ctx.lineWidth = 2 * devicePixelRatio;
    ctx.setLineDash([7 * devicePixelRatio, 5 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(this.#place(plot, this.#history.time(last)), top);
    ctx.lineTo(bbox.left + bbox.width, top);
    ctx.stroke();
    ctx.restore();
  }

  #markRefusals(plot: Plot) {
    const { ctx, bbox } = plot;
    const width = Math.round(2 * devicePixelRatio);
    ctx.save();
    ctx.fillStyle = colour("--refused");
    let last = -1;
    // Those that fall on one place are one tick, which is the higher the more they are.
    let refusals = 0;
    const bursts: Burst[] = [];
    for (let index = this.#first(); index < this.#history.length; index += 1) {
      const more = this.#history.at("refused", index);
      if (more <= 0) continue;
      const middle = (this.#place(plot, this.#history.time(index)) + this.#place(plot, this.#endOf(index))) / 2;
      const left = Math.round(middle - width / 2);
      refusals = left === last ? refusals + more : more;
      last = left;
      const burst = bursts.at(-1);
      if (burst && left - burst.to < BURST_DISTANCE * devicePixelRatio) {
        burst.to = left;
        burst.refusals += more;
      } else bursts.push({ from: left, to: left, refusals: more });
      const height = Math.min(TICK_HEIGHT * (1 + Math.log2(refusals) / 2), MOST_TICK_HEIGHT);
      ctx.fillRect(left, bbox.top - 3 * devicePixelRatio, width, height * devicePixelRatio);
    }
    this.#countBursts(plot, bursts);
    ctx.restore();
  }

  /** Writes above a burst how many 429s it is. The largest have the room. */
  #countBursts({ ctx, bbox }: Plot, bursts: readonly Burst[]) {
    ctx.font = `600 ${10 * devicePixelRatio}px sans-serif`;
    ctx.textAlign = "center";
    ctx.textBaseline = "bottom";
    const taken: { start: number; end: number }[] = [];
    for (const { from, to, refusals } of bursts.filter((one) => one.refusals >= LEAST_COUNTED).sort((one, other) => other.refusals - one.refusals)) {
      const text = count(refusals);
      const half = ctx.measureText(text).width / 2 + 2 * devicePixelRatio;
      const middle = Math.min(Math.max((from + to) / 2, bbox.left + half), bbox.left + bbox.width - half);
      const [start, end] = [middle - half, middle + half];
      if (taken.some((other) => start < other.end && other.start < end)) continue;
      taken.push({ start, end });
      ctx.fillText(text, middle, bbox.top - 3 * devicePixelRatio);
    }
  }

  /** Live changes, the latest first, so that a label knows the room it has. */
  #markChanges(plot: Plot) {
    if (this.#changes.length === 0) return;
    const { ctx, bbox } = plot;
    const scale = devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = colour("--muted");
    ctx.lineWidth = Math.max(1, Math.round(scale));
    ctx.font = `${11 * scale}px sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "top";
    ctx.setLineDash([2 * scale, 3 * scale]);
    this.#room.fill(bbox.left + bbox.width);
    let next = Number.POSITIVE_INFINITY;
    for (let index = this.#changes.length - 1; index >= 0; index -= 1) {
      const change = this.#changes[index];
      if (!change || change.at_ms < this.#from || change.at_ms > this.#end) continue;
      if ("model" in change && change.model !== this.#provider) continue;
      const left = this.#place(plot, change.at_ms);
      if (next - left < MARK_DISTANCE * scale) continue;
      next = left;
      ctx.beginPath();
      ctx.moveTo(left + 0.5, bbox.top);
      ctx.lineTo(left + 0.5, bbox.top + bbox.height);
      ctx.stroke();
      this.#label(plot, changeLabel(change), left);
    }
    ctx.restore();
  }

  /** Writes a label beside the line at `left`, in the first of the rows that has room. */
  #label({ ctx, bbox }: Plot, text: string, left: number) {
    const scale = devicePixelRatio;
    const gap = 4 * scale;
    const length = ctx.measureText(text).width + 2 * gap;
    // At the right edge it stands before its line.
    const start = left + length > bbox.left + bbox.width ? left - length : left;
    const row = this.#room.findIndex((room) => start + length <= room);
    if (row < 0 || start < bbox.left) return;
    this.#room[row] = start;
    ctx.fillText(text, start + gap, bbox.top + (9 + LABEL_HEIGHT * row) * scale);
  }

  #sayWhatIsUnderThePointer() {
    const index = this.#plot.cursor.idx;
    const history = this.#history;
    if (index === null || index === undefined || index >= history.length) {
      this.#say(HINT);
      return;
    }
    const capacity = history.at("capacity", index);
    let text = `at ${span(history.time(index))} · in flight ${mean(history.at("inFlight", index))} (peak ${count(history.at("peak", index))})`;
    text += ` · limit ${count(history.at("limit", index))}`;
    if (capacity < UNBOUNDED) text += ` · can take ${count(capacity)}`;
    if (history.at("refused", index) > 0) text += ` · 429s ${count(history.at("refused", index))}`;
    if (history.at("cooling", index) > 0) text += " · cooling down";
    this.#say(text);
  }
}
