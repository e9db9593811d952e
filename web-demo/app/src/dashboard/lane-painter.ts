// Paints the spans of worker slots on a canvas. Spans too short to see are painted once per pixel, so that a
// frame costs at most lanes times pixels, however busy the run is.
import { tick } from "../format.ts";
import { LOCAL, NUMBERS_PER_SPAN, SPANS_KEPT, WAITING } from "../spans.ts";
import { canvasColour, colour, mixedColour } from "./palette.ts";

/** The room of all lanes together, and the least and most of one, in CSS pixels. */
const ROOM = 300;
const LOWEST_LANE = 5;
const HIGHEST_LANE = 18;
/** Below the lanes, for the times. */
const AXIS = 22;
/** A wait at least this wide and high has stripes, in CSS pixels; a smaller one is pale, which is as calm. */
const LEAST_STRIPED = 7;

/** A stripe pattern. */
function hatch(ctx: CanvasRenderingContext2D, stroke: string, scale: number) {
  const size = Math.round(5 * scale);
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const paint = tile.getContext("2d");
  if (!paint) return stroke;
  paint.globalAlpha = 0.14;
  paint.fillStyle = stroke;
  paint.fillRect(0, 0, size, size);
  paint.globalAlpha = 0.55;
  paint.strokeStyle = stroke;
  paint.lineWidth = 1.1 * scale;
  paint.beginPath();
  // Three strokes, so that the tiles meet without a seam.
  for (const shift of [-size, 0, size]) {
    paint.moveTo(shift - 1, size + 1);
    paint.lineTo(shift + size + 1, -1);
  }
  paint.stroke();
  return ctx.createPattern(tile, "repeat") ?? stroke;
}

/** The round step of time that cuts `windowMs` into four to nine. */
function stepOf(windowMs: number) {
  let step = 10 ** Math.floor(Math.log10(windowMs / 4));
  for (const factor of [2, 2.5, 2]) if (windowMs / step > 9) step *= factor;
  return step;
}

export class LanePainter {
  #canvas;
  #ctx;
  #lanes;
  #laneHeight;
  #width = 0;
  #scale = 1;
  #from = 0;
  #windowMs = 1;
  /** How waiting is painted, by column: with stripes, and where they would not be seen. */
  #hatched: (CanvasPattern | string)[] = [];
  #paled: string[] = [];
  /** The last pixel painted in each lane. */
  #painted;

  constructor(canvas: HTMLCanvasElement, lanes: number) {
    const ctx = canvas.getContext("2d");
    if (!ctx) throw new Error("this browser draws no canvas");
    this.#ctx = ctx;
    this.#canvas = canvas;
    this.#lanes = Math.max(1, lanes);
    this.#laneHeight = Math.min(HIGHEST_LANE, Math.max(LOWEST_LANE, Math.floor(ROOM / this.#lanes)));
    this.#painted = new Float64Array(this.#lanes);
  }

  /** In CSS pixels. */
  get height() {
    return this.#lanes * this.#laneHeight + AXIS;
  }

  /** @param width in CSS pixels */
  resize(width: number) {
    this.#width = width;
    // More than two by two would cost much and show little.
    this.#scale = Math.min(2, devicePixelRatio);
    this.#canvas.width = Math.max(1, Math.round(width * this.#scale));
    this.#canvas.height = Math.round(this.height * this.#scale);
    this.recolour();
  }

  recolour() {
    this.#hatched = [];
    this.#paled = [];
  }

  /** The lane and the instant at a place in CSS pixels. */
  at(left: number, top: number) {
    const lane = Math.min(this.#lanes - 1, Math.max(0, Math.floor(top / this.#laneHeight)));
    const share = Math.min(1, Math.max(0, left / Math.max(1, this.#width)));
    return { lane, ms: Math.max(0, this.#from + share * this.#windowMs) };
  }

  /**
   * @param time in ms: the present, where the picture begins, how much it shows, and from when on the spans
   * are known
   */
  paint(spans: Float64Array, count: number, time: { now: number, from: number, span: number, knownFrom: number }, cursor: { lane: number, ms: number } | undefined) {
    const ctx = this.#ctx;
    const { now, from, span, knownFrom } = time;
    this.#windowMs = span;
    this.#from = from;
    ctx.clearRect(0, 0, this.#canvas.width, this.#canvas.height);
    // So many are kept: what lies before the earliest of them is not known.
    const known = Math.max(this.#from, knownFrom, count >= SPANS_KEPT ? (spans[2] ?? 0) : 0);
    this.#paintAxis(known);
    this.#paintSpans(spans, count, now);
    if (cursor) this.#paintCursor(cursor);
  }

  #place(ms: number) {
    return ((ms - this.#from) / this.#windowMs) * this.#canvas.width;
  }

  /** @param known from when on the spans are known, in ms */
  #paintAxis(known: number) {
    const ctx = this.#ctx;
    const start = this.#place(known);
    const bottom = this.#lanes * this.#laneHeight * this.#scale;
    ctx.fillStyle = colour("--sunk");
    const lane = this.#laneHeight * this.#scale;
    for (let index = 0; index < this.#lanes; index += 1) ctx.fillRect(start, index * lane, this.#canvas.width - start, lane - this.#scale);
    const step = stepOf(this.#windowMs);
    ctx.font = `${12 * this.#scale}px sans-serif`;
    ctx.textBaseline = "top";
    for (let ms = Math.ceil(this.#from / step) * step; ms <= this.#from + this.#windowMs; ms += step) {
      const left = Math.round(this.#place(ms));
      ctx.fillStyle = colour("--line");
      ctx.fillRect(left, 0, Math.max(1, Math.round(this.#scale)), bottom);
      ctx.fillStyle = colour("--muted");
      const text = tick(ms, step);
      const width = ctx.measureText(text).width;
      // The first and last are kept within the picture.
      ctx.fillText(text, Math.min(this.#canvas.width - width, Math.max(0, left - width / 2)), bottom + 6 * this.#scale);
    }
  }

  #paintSpans(spans: Float64Array, count: number, now: number) {
    const ctx = this.#ctx;
    const lane = this.#laneHeight * this.#scale;
    const gap = Math.max(1, Math.round(this.#scale));
    this.#painted.fill(-1);
    let style = -1;
    for (let index = 0; index < count; index += 1) {
      const at = index * NUMBERS_PER_SPAN;
      const slot = spans[at] ?? 0;
      const end = spans[at + 2] ?? 0;
      if (slot >= this.#lanes || end < this.#from) continue;
      // Whole pixels, which are painted fastest.
      const left = Math.max(0, Math.floor(this.#place(spans[at + 1] ?? 0)));
      const right = Math.min(this.#canvas.width, Math.ceil(this.#place(Number.isNaN(end) ? now : Math.min(end, now))));
      // It begins after the stretch that is shown.
      if (left >= right) continue;
      // Within the pixel painted last: nothing would change.
      if (right <= (this.#painted[slot] ?? 0) && right - left <= 1) continue;
      this.#painted[slot] = right;
      const column = spans[at + 3] ?? 0;
      const kind = spans[at + 4] ?? 0;
      const isStriped = kind === WAITING && this.#laneHeight >= LEAST_STRIPED && right - left >= LEAST_STRIPED * this.#scale;
      const present = 4 * column + (isStriped ? 3 : kind);
      if (style !== present) {
        style = present;
        ctx.fillStyle = isStriped ? this.#hatch(column) : kind === WAITING ? this.#pale(column) : canvasColour(column);
      }
      const width = Math.max(gap, right - left - (right - left > 6 * gap ? gap : 0));
      if (kind === LOCAL) ctx.fillRect(left, slot * lane + Math.round(0.3 * lane), width, Math.max(gap, Math.round(0.4 * lane) - gap));
      else ctx.fillRect(left, slot * lane, width, lane - gap);
    }
  }

  #pale(column: number) {
    return (this.#paled[column] ??= mixedColour(column));
  }

  #hatch(column: number) {
    return (this.#hatched[column] ??= hatch(this.#ctx, canvasColour(column), this.#scale));
  }

  #paintCursor({ lane, ms }: { lane: number, ms: number }) {
    const ctx = this.#ctx;
    const height = this.#laneHeight * this.#scale;
    ctx.strokeStyle = colour("--ink");
    ctx.lineWidth = 1.5 * this.#scale;
    const left = Math.min(this.#canvas.width - 2, Math.max(1, this.#place(ms)));
    ctx.strokeRect(0.75 * this.#scale, lane * height + 0.25 * this.#scale, this.#canvas.width - 1.5 * this.#scale, height - 0.5 * this.#scale);
    ctx.fillStyle = colour("--ink");
    ctx.fillRect(left - this.#scale, lane * height, 2 * this.#scale, height);
  }
}
