// @ts-check
// The tide chart of one provider: calls in flight as water, the limit as the gate above it, the provider's true
// capacity as the tide mark; 429 answers as ticks along the top, cooldowns as shade.
import uPlot from "./vendor/uplot/uPlot.esm.js";
import { count, mean, span, tick } from "./format.js";

/** @typedef {import("./pkg/tidegate_playground.js").TelemetryField} TelemetryField */
/** @typedef {Record<TelemetryField, Float64Array>} Columns */

/** Capacities from here up mean "no bound": they lie above every axis. */
const UNBOUNDED = 2 ** 31;
/** A run shorter than this is shown on an axis this long, in ms. */
const SHORTEST_AXIS = 10_000;
/** The value axis is never lower than this. */
const LOWEST_TOP = 4;
/** The height of the ticks that mark 429 answers, in CSS pixels. */
const TICK_HEIGHT = 9;

/** Said while nothing is under the pointer. */
const HINT = "Point at the chart to read it. The slider moves what the provider bears.";

/** @param {string} name */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export class TideChart {
  /** The top of the value axis: it only grows during a run, so that the picture stays put. */
  top = LOWEST_TOP;
  /** The end of the time axis, in ms. */
  end = SHORTEST_AXIS;
  /** @type {Columns | undefined} */
  #columns;
  /** @type {Float64Array} */
  #times = new Float64Array(0);
  /** @type {uPlot} */
  #plot;
  #readout;
  #onLayout;
  #resize;

  /**
   * @param {HTMLElement} stage where to draw
   * @param {HTMLElement} readout where to say what is under the pointer
   * @param {(top: number, height: number) => void} onLayout hears where the plot lies within the stage, in CSS pixels
   */
  constructor(stage, readout, onLayout) {
    this.#readout = readout;
    this.#onLayout = onLayout;
    this.#plot = new uPlot(this.#options(stage), [[], [], [], [], []], stage);
    this.#resize = new ResizeObserver(() => {
      this.#plot.setSize({ width: stage.clientWidth, height: stage.clientHeight });
      this.#layOut();
    });
    this.#resize.observe(stage);
    this.#layOut();
  }

  /** Shows a history. The chart keeps the arrays.
   * @param {Float64Array} times @param {Columns} columns */
  show(times, columns) {
    this.#times = times;
    this.#columns = columns;
    this.end = Math.max(SHORTEST_AXIS, times[times.length - 1] ?? 0);
    this.#grow(columns);
    this.#plot.setData([times, columns.inFlight, columns.peak, columns.limit, columns.capacity]);
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

  /** @param {Columns} columns */
  #grow(columns) {
    let most = 0;
    for (const column of [columns.limit, columns.capacity, columns.peak]) {
      for (const value of column) if (value > most && value < UNBOUNDED) most = value;
    }
    if (most > 0.94 * this.top) this.top = Math.ceil(most * 1.3);
  }

  #layOut() {
    const { top, height } = this.#plot.bbox;
    this.#onLayout(top / devicePixelRatio, height / devicePixelRatio);
  }

  /** @param {HTMLElement} stage @returns {uPlot.Options} */
  #options(stage) {
    const axis = {
      stroke: () => colour("--muted"),
      grid: { stroke: () => colour("--line"), width: 1 },
      ticks: { show: false },
      font: "12px system-ui, sans-serif",
    };
    const paths = uPlot.paths.stepped?.({ align: 1 });
    const level = { width: 2, points: { show: false }, ...(paths && { paths }) };
    return {
      width: stage.clientWidth,
      height: stage.clientHeight,
      padding: [14, 18, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false }, sync: { key: "tide" } },
      scales: {
        x: { time: false, range: () => [0, this.end] },
        y: { range: () => [0, this.top] },
      },
      axes: [
        { ...axis, size: 30, space: 70, values: (_, ticks) => ticks.map((at) => tick(at, (ticks[1] ?? at) - (ticks[0] ?? 0))) },
        { ...axis, size: 38, space: 28, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000] },
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
        draw: [(plot) => this.#markRefusals(plot)],
        setCursor: [() => this.#sayWhatIsUnderThePointer()],
      },
    };
  }

  /** The left and right edge of a bucket, in canvas pixels. @param {uPlot} plot @param {number} index */
  #edges(plot, index) {
    const at = (/** @type {number} */ bucket) => Math.round(plot.valToPos(this.#times[bucket] ?? 0, "x", true));
    return { left: at(index), right: at(Math.min(index + 1, this.#times.length - 1)) };
  }

  /** One rectangle for each stretch of neighbouring buckets, so that no seams show. @param {uPlot} plot */
  #shadeCooldowns(plot) {
    const { ctx, bbox } = plot;
    const shares = this.#columns?.cooling ?? [];
    ctx.save();
    ctx.fillStyle = colour("--cooling");
    for (let index = 0; index < shares.length; index += 1) {
      const first = index;
      let sum = 0;
      while ((shares[index] ?? 0) > 0) sum += shares[index++] ?? 0;
      if (index === first) continue;
      const { left } = this.#edges(plot, first);
      const { right } = this.#edges(plot, index - 1);
      ctx.globalAlpha = sum / (index - first);
      ctx.fillRect(left, bbox.top, Math.max(1, right - left), bbox.height);
    }
    ctx.restore();
  }

  /** @param {uPlot} plot */
  #markRefusals(plot) {
    const { ctx, bbox } = plot;
    const counts = this.#columns?.refused ?? [];
    const width = 2 * devicePixelRatio;
    ctx.save();
    ctx.fillStyle = colour("--refused");
    for (let index = 0; index < counts.length; index += 1) {
      if ((counts[index] ?? 0) <= 0) continue;
      const { left, right } = this.#edges(plot, index);
      ctx.fillRect((left + right - width) / 2, bbox.top - 3 * devicePixelRatio, width, TICK_HEIGHT * devicePixelRatio);
    }
    ctx.restore();
  }

  #sayWhatIsUnderThePointer() {
    const index = this.#plot.cursor.idx;
    const columns = this.#columns;
    if (index === null || index === undefined || !columns || index >= this.#times.length) {
      this.#readout.textContent = HINT;
      return;
    }
    const at = (/** @type {TelemetryField} */ field) => columns[field][index] ?? 0;
    const capacity = at("capacity");
    const parts = [
      `at ${span(this.#times[index] ?? 0)}`,
      `in flight ${mean(at("inFlight"))} (peak ${count(at("peak"))})`,
      `limit ${count(at("limit"))}`,
      `capacity ${capacity < UNBOUNDED ? count(capacity) : "unbounded"}`,
    ];
    if (at("refused") > 0) parts.push(`429s ${count(at("refused"))}`);
    if (at("cooling") > 0) parts.push("cooling down");
    this.#readout.textContent = parts.join(" · ");
  }
}
