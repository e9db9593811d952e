// Worker slots as a timeline: a lane per slot, a span per stretch of work in the colour of its column. A call in
// flight is full, a wait for a call is pale (and hatched where there is room), local work is a thinner line.
import { flushSync } from "svelte";
import { count, span } from "../format.ts";
import { KEYS } from "../legend/keys.ts";
import { NUMBERS_PER_SPAN, SPANS_KEPT } from "../spans.ts";
import { listen } from "./gestures.ts";
import { LanePainter } from "./lane-painter.ts";
import { OUT_OF_SIGHT_MS, Panel } from "./panel.ts";
import { Timeline } from "./timeline.ts";
import { watchVisibility } from "./visibility.ts";
import WorkerLanesView from "./WorkerLanes.svelte";
import type { On, View } from "./view.ts";
import type { Layout } from "../pkg/tidegate_playground.js";

/** More spans than this are not drawn: as many as are kept, and one that goes on in every lane. */
const MOST_SPANS = SPANS_KEPT + 64;
const KINDS = [KEYS.working, KEYS.awaiting, KEYS.calling];
/** The text that stands for the picture is renewed this often: a screen reader is not to be flooded. */
const DESCRIBED_EVERY_MS = 1_000;
const HINT = "Point at a span to read it, click to ask why. Ctrl and wheel or a pinch zooms, dragging moves. Keys: arrows, Enter, + and −, 0 for the latest";
/** How much more is shown after one press of a key or a button. */
const ZOOM = 1.5;
/** How far Shift and an arrow key move, as a share of what is shown. */
const PAN = 0.25;
/** So much more of the past is asked for than is shown, so that not every step of a gesture asks. */
const SPARE = 1.5;

export class WorkerLanes extends Panel {
  restMs = 0;
  #layout;
  #on;
  /** What is under the cursor, in words. */
  readout = $state(HINT);
  /**
   * What the keyboard's cursor came to: unlike the readout it stays while the run goes on, so that it is
   * spoken once.
   */
  spoken = $state("");
  /** How many slots are shown. */
  shown = $state("");
  /** The picture in words. */
  description = $state("");
  /** How many slots do which kind of work now. */
  tally = $state.raw<readonly number[]>([]);
  /** Whether the latest stretch is shown, as it comes. */
  follows = $state(true);
  #plot: HTMLElement | undefined;
  #painter: LanePainter | undefined;
  #isVisible = true;
  /** The spans shown: kept for the pointer and the keyboard. */
  #spans = new Float64Array(0);
  #count = 0;
  #sample: View["sample"] | undefined;
  #now = 0;
  #timeline = new Timeline();
  /** How much of the past the spans cover, and how much has been asked for, in ms. */
  #knownMs = 0;
  #askedMs = 0;
  /** What the cursor is on: a lane and an instant in ms; none without a pointer or focus. */
  #cursor: { lane: number, ms: number } | undefined;
  #paintedAt = Number.NEGATIVE_INFINITY;
  #describedAt = Number.NEGATIVE_INFINITY;

  constructor(parent: Element, layout: Layout, on: On) {
    super();
    this.#layout = layout;
    this.#on = on;
    this.mount(WorkerLanesView, parent, { lanes: this });
  }

  /** Makes the picture within an element that has a canvas. */
  open = (plot: HTMLElement) => {
    const canvas = plot.querySelector("canvas");
    if (!canvas) return undefined;
    const painter = new LanePainter(canvas, this.#layout.lanes);
    this.#plot = plot;
    this.#painter = painter;
    plot.style.height = `${painter.height}px`;
    const resize = new ResizeObserver(([entry]) => {
      painter.resize(entry?.contentRect.width ?? plot.clientWidth);
      this.#paint();
    });
    resize.observe(plot);
    const visibility = watchVisibility(plot, (isVisible) => {
      this.#isVisible = isVisible;
      if (isVisible) this.#paint();
    });
    this.#listen(plot, painter);
    return () => {
      resize.disconnect();
      visibility.disconnect();
    };
  };

  /** @override */
  take(view: View) {
    const length = Math.min(view.lanesCount, MOST_SPANS) * NUMBERS_PER_SPAN;
    const from = view.lanesCount * NUMBERS_PER_SPAN - length;
    if (this.#spans.length < length) this.#spans = new Float64Array(Math.max(length, 2 * this.#spans.length));
    this.#spans.set(view.lanes.subarray(from, from + length));
    this.#count = length / NUMBERS_PER_SPAN;
    this.#now = view.sample.at / 1e6;
    this.#timeline.follow(this.#now, Math.max(1, view.windowMs));
    this.#knownMs = view.lanesMs ?? view.windowMs;
    this.#sample = view.sample;
    this.isStale = true;
  }

  /** @override */
  draw() {
    const now = performance.now();
    if (!this.#isVisible && now - this.#paintedAt < OUT_OF_SIGHT_MS) return;
    this.#paintedAt = now;
    this.isStale = false;
    if (this.#sample) this.#describe(this.#sample);
    this.#paint();
    flushSync();
  }

  /** @override */
  recolour() {
    this.#painter?.recolour();
    this.#paint();
  }

  #paint() {
    const { from, span } = this.#timeline;
    this.#painter?.paint(this.#spans, this.#count, { now: this.#now, from, span, knownFrom: this.#now - this.#knownMs }, this.#cursor);
    this.#sayWhatIsUnderTheCursor();
  }

  /** The picture in words. */
  #describe({ slots, finished }: View["sample"]) {
    const at = performance.now();
    if (at - this.#describedAt < DESCRIBED_EVERY_MS && !finished) return;
    this.#describedAt = at;
    const tally = KINDS.map(() => 0);
    for (let index = 0; index < this.#count; index += 1) {
      if (!this.#goesOn(index)) continue;
      const kind = this.#spans[NUMBERS_PER_SPAN * index + 4] ?? 0;
      tally[kind] = (tally[kind] ?? 0) + 1;
    }
    this.tally = tally;
    const [working = 0, awaiting = 0, calling = 0] = tally;
    const { lanes } = this.#layout;
    const all = Math.max(lanes, slots[0]?.limit ?? 0);
    this.shown = all > lanes ? `${count(lanes)} of ${count(all)} slots shown` : `${count(lanes)} slots`;
    this.description =
      `${this.shown}: ${calling} ${KEYS.calling}, ${awaiting} ${KEYS.awaiting}, ${working} ${KEYS.working}, ` +
      `${lanes - calling - awaiting - working} free, at ${span(this.#now)}.`;
  }

  #goesOn(index: number) {
    const end = this.#spans[NUMBERS_PER_SPAN * index + 2] ?? 0;
    return Number.isNaN(end) || end >= this.#now;
  }

  /** The span under a lane and an instant, or -1. */
  #find(lane: number, ms: number) {
    for (let index = 0; index < this.#count; index += 1) {
      if (this.#spans[NUMBERS_PER_SPAN * index] !== lane || (this.#spans[NUMBERS_PER_SPAN * index + 1] ?? 0) > ms) continue;
      if (this.#goesOn(index) || (this.#spans[NUMBERS_PER_SPAN * index + 2] ?? 0) >= ms) return index;
    }
    return -1;
  }

  #sayWhatIsUnderTheCursor() {
    if (!this.#cursor) {
      this.readout = HINT;
      return;
    }
    const { lane, ms } = this.#cursor;
    const index = this.#find(lane, ms);
    const slot = `Slot ${lane + 1}`;
    if (index < 0) {
      this.readout = `${slot}: free at ${span(ms)}`;
      return;
    }
    const [, start = 0, end = 0, column = 0, kind = 0] = this.#spans.subarray(NUMBERS_PER_SPAN * index, NUMBERS_PER_SPAN * (index + 1));
    const until = this.#goesOn(index) ? `for ${span(this.#now - start)} so far` : `for ${span(end - start)}`;
    this.readout = `${slot}: ${this.#layout.columns[column]?.name ?? "?"}, ${KINDS[kind] ?? "?"}, from ${span(start)} ${until}`;
  }

  #listen(plot: HTMLElement, painter: LanePainter) {
    plot.addEventListener("pointermove", (event) => this.#point(event, plot, painter));
    plot.addEventListener("pointerleave", () => this.#moveTo(undefined));
    plot.addEventListener("blur", () => this.#moveTo(undefined));
    const hasGestured = listen(plot, {
      zoom: (factor, left) => this.#zoom(factor, painter.at(left, 0).ms),
      pan: (pixels) => this.#move(() => this.#timeline.pan((-pixels / Math.max(1, plot.clientWidth)) * this.#timeline.span)),
    });
    plot.addEventListener("click", (event) => {
      if (hasGestured()) return;
      this.#point(event, plot, painter);
      this.#ask();
    });
    plot.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      if (!this.#press(event.key, event.shiftKey)) return;
      event.preventDefault();
      this.spoken = this.readout;
    });
  }

  /** Shows more time, or less. */
  zoom(direction: "out" | "in") {
    this.#zoom(direction === "out" ? ZOOM : 1 / ZOOM, this.#cursor?.ms ?? this.#timeline.to);
  }

  /** Shows the latest stretch, as it comes. */
  follow() {
    this.#move(() => this.#timeline.reset());
  }

  #zoom(factor: number, around: number) {
    this.#move(() => this.#timeline.zoom(factor, Math.min(around, this.#now)));
  }

  /** Shows another stretch of time. */
  #move(change: () => void) {
    change();
    const { isUsual, from } = this.#timeline;
    this.follows = isUsual;
    const needed = this.#now - from;
    if (isUsual ? this.#askedMs > 0 : needed > Math.max(this.#knownMs, this.#askedMs)) {
      this.#askedMs = isUsual ? 0 : needed * SPARE;
      this.#on.past(isUsual ? undefined : this.#askedMs);
    }
    this.#paint();
  }

  #point(event: PointerEvent | MouseEvent, plot: HTMLElement, painter: LanePainter) {
    const { left, top } = plot.getBoundingClientRect();
    this.#moveTo(painter.at(event.clientX - left, event.clientY - top));
  }

  #press(key: string, isShifted: boolean) {
    const { lane, ms } = this.#cursor ?? { lane: 0, ms: this.#now };
    const last = this.#layout.lanes - 1;
    switch (key) {
      case "ArrowUp":
        this.#moveTo({ lane: Math.max(0, lane - 1), ms });
        return true;
      case "ArrowDown":
        this.#moveTo({ lane: Math.min(last, this.#cursor ? lane + 1 : lane), ms });
        return true;
      case "+":
      case "=":
      case "-":
        this.zoom(key === "-" ? "out" : "in");
        return true;
      case "0":
        this.follow();
        return true;
      case "ArrowLeft":
      case "ArrowRight":
        if (isShifted) {
          this.#move(() => this.#timeline.pan((key === "ArrowLeft" ? -PAN : PAN) * this.#timeline.span));
          return true;
        }
        this.#moveTo({ lane, ms: this.#beside(lane, ms, key === "ArrowRight") });
        return true;
      case "Home":
        this.#moveTo({ lane: 0, ms });
        return true;
      case "End":
        this.#moveTo({ lane: last, ms });
        return true;
      case "Enter":
        this.#ask();
        return true;
      default:
        return false;
    }
  }

  /** The middle of the next span of a lane, or the one before. */
  #beside(lane: number, ms: number, later: boolean) {
    const present = this.#find(lane, ms);
    const { from, to } = this.#timeline;
    let best = later ? this.#now : Math.max(0, this.#now - this.#knownMs);
    for (let index = 0; index < this.#count; index += 1) {
      if (this.#spans[NUMBERS_PER_SPAN * index] !== lane || index === present) continue;
      const start = this.#spans[NUMBERS_PER_SPAN * index + 1] ?? 0;
      const end = this.#goesOn(index) ? this.#now : (this.#spans[NUMBERS_PER_SPAN * index + 2] ?? 0);
      // Of a span that is partly in sight, the middle of that part.
      const middle = start < to && end > from ? (Math.max(start, from) + Math.min(end, to)) / 2 : (start + end) / 2;
      if (later ? middle > ms && middle < best : middle < ms && middle > best) best = middle;
    }
    return best;
  }

  #ask() {
    if (!this.#cursor) return;
    const { lane, ms } = this.#cursor;
    const index = this.#find(lane, ms);
    const isPast = index >= 0 ? !this.#goesOn(index) : ms < this.#now - this.#timeline.span / Math.max(1, this.#plot?.clientWidth ?? 1);
    this.#on.why({ lane }, isPast ? { at: ms, steps: this.#stepsAround(lane, index) } : undefined);
  }

  /** What the task of a span went through in its slot: all spans that join it. */
  #stepsAround(lane: number, index: number) {
    const spanAt = (at: number) => this.#spans.subarray(NUMBERS_PER_SPAN * at, NUMBERS_PER_SPAN * (at + 1));
    const [, , , column = -1] = index < 0 ? [] : spanAt(index);
    const joined: number[] = [];
    for (let at = 0; at < this.#count; at += 1) {
      const [slot, start, , own] = spanAt(at);
      if (slot !== lane || own !== column) continue;
      const last = joined.at(-1);
      if (last !== undefined && spanAt(last)[2] !== start) {
        if (joined.includes(index)) break;
        joined.length = 0;
      }
      joined.push(at);
    }
    if (!joined.includes(index)) return [];
    return joined.map((at) => {
      const [, start = 0, end = 0, , kind = 0] = spanAt(at);
      const length = this.#goesOn(at) ? `${span(this.#now - start)} so far` : span(end - start);
      return `${this.#layout.columns[column]?.name ?? "?"}: ${KINDS[kind] ?? "?"} from ${span(start)}, for ${length}`;
    });
  }

  #moveTo(cursor: { lane: number, ms: number } | undefined) {
    if (cursor === this.#cursor) return;
    this.#cursor = cursor;
    if (cursor && (cursor.ms < this.#timeline.from || cursor.ms > this.#timeline.to)) this.#move(() => this.#timeline.reveal(cursor.ms));
    else this.#paint();
  }
}
