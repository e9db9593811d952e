// Worker slots as a timeline: a lane per slot, a span per stretch of work in the colour of its column. A call that is
// out is full, a wait for a call is pale (and hatched where there is room), local work is a thinner line.
import { count, span } from "../format.ts";
import { make, section, Text, watchVisibility } from "./dom.ts";
import { listen } from "./gestures.ts";
import { LanePainter } from "./lane-painter.ts";
import { OUT_OF_SIGHT_MS, Panel } from "./panel.ts";
import { Timeline } from "./timeline.ts";
import type { On, View } from "./view.ts";
import type { Layout } from "../pkg/tidegate_playground.js";

/** Numbers per span: lane, start, end, column, kind. */
const STRIDE = 5;
/** More spans than this are not drawn: as many as are kept, and one that goes on in every lane. */
const MOST_SPANS = 8_192 + 64;
const KINDS = ["local work", "waiting for a call", "call out"];
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
  #canvas = make("canvas", { "aria-hidden": "true" });
  #plot;
  #readout = new Text(make("p", { class: "readout" }));
  /** What the keyboard's cursor came to: unlike the readout it stays while the run goes on, so that it is spoken once. */
  #spoken = new Text(make("p", { class: "visually-hidden", role: "status" }));
  #shown = new Text(make("p", { class: "soft lanes-shown" }));
  #description;
  #painter;
  #resize;
  #visibility;
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
  #follow = make("button", { type: "button", title: "Show the latest stretch, as it comes", disabled: "" }, "Follow");
  /** What the cursor is on: a lane and an instant in ms; none without a pointer or focus. */
  #cursor: { lane: number, ms: number } | undefined;
  #paintedAt = Number.NEGATIVE_INFINITY;
  #describedAt = Number.NEGATIVE_INFINITY;
  #tally = new Int32Array(KINDS.length);

  constructor(parent: HTMLElement, layout: Layout, on: On) {
    const { element, head } = section("lanes", "Worker slots", "What each slot did lately; a pale stretch is a worker that waits");
    super(element, parent);
    this.#layout = layout;
    this.#on = on;
    head.append(this.#shown.element, this.#zoomButtons());
    const id = `lanes-${Math.random().toString(36).slice(2)}`;
    this.#description = new Text(make("p", { class: "visually-hidden", id }));
    this.#plot = make(
      "div",
      { class: "lanes-plot", tabindex: "0", role: "application", "aria-roledescription": "timeline", "aria-label": "Worker slots over the latest virtual time", "aria-describedby": id },
      this.#canvas,
    );
    element.append(this.#plot, make("footer", {}, this.#readout.element), this.#description.element, this.#spoken.element, this.#key());
    this.#readout.set(HINT);
    this.#painter = new LanePainter(this.#canvas, layout.lanes);
    this.#plot.style.height = `${this.#painter.height}px`;
    this.#resize = new ResizeObserver(([entry]) => {
      this.#painter.resize(entry?.contentRect.width ?? this.#plot.clientWidth);
      this.#paint();
    });
    this.#resize.observe(this.#plot);
    this.#visibility = watchVisibility(this.#plot, (visible) => {
      this.#isVisible = visible;
      if (visible) this.#paint();
    });
    this.#listen();
  }

  /** @override */
  take(view: View) {
    const length = Math.min(view.lanesCount, MOST_SPANS) * STRIDE;
    const from = view.lanesCount * STRIDE - length;
    if (this.#spans.length < length) this.#spans = new Float64Array(Math.max(length, 2 * this.#spans.length));
    this.#spans.set(view.lanes.subarray(from, from + length));
    this.#count = length / STRIDE;
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
  }

  /** @override */
  recolour() {
    this.#painter.recolour();
    this.#paint();
  }

  /** @override */
  destroy() {
    this.#resize.disconnect();
    this.#visibility.disconnect();
    super.destroy();
  }

  #paint() {
    const { from, span } = this.#timeline;
    this.#painter.paint(this.#spans, this.#count, { now: this.#now, from, span, knownFrom: this.#now - this.#knownMs }, this.#cursor);
    this.#sayWhatIsUnderTheCursor();
  }

  /** The picture in words. */
  #describe({ slots, finished }: View["sample"]) {
    const at = performance.now();
    if (at - this.#describedAt < DESCRIBED_EVERY_MS && !finished) return;
    this.#describedAt = at;
    this.#tally.fill(0);
    for (let index = 0; index < this.#count; index += 1) {
      if (!this.#goesOn(index)) continue;
      const kind = this.#spans[STRIDE * index + 4] ?? 0;
      this.#tally[kind] = (this.#tally[kind] ?? 0) + 1;
    }
    const [local = 0, waiting = 0, calling = 0] = this.#tally;
    const { lanes } = this.#layout;
    const all = Math.max(lanes, slots[0]?.limit ?? 0);
    this.#shown.set(all > lanes ? `${count(lanes)} of ${count(all)} slots shown` : `${count(lanes)} slots`);
    this.#description.set(
      `${this.#shown.element.textContent}: ${calling} with a call out, ${waiting} waiting for a call, ${local} at local work, ` +
        `${lanes - calling - waiting - local} free, at ${span(this.#now)}.`,
    );
    for (const [index, name] of (["local", "waiting", "calling"] as const).entries()) {
      this.#plot.dataset[name] = String(this.#tally[index]);
    }
  }

  #goesOn(index: number) {
    const end = this.#spans[STRIDE * index + 2] ?? 0;
    return Number.isNaN(end) || end >= this.#now;
  }

  /** The span under a lane and an instant, or -1. */
  #find(lane: number, ms: number) {
    for (let index = 0; index < this.#count; index += 1) {
      if (this.#spans[STRIDE * index] !== lane || (this.#spans[STRIDE * index + 1] ?? 0) > ms) continue;
      if (this.#goesOn(index) || (this.#spans[STRIDE * index + 2] ?? 0) >= ms) return index;
    }
    return -1;
  }

  #sayWhatIsUnderTheCursor() {
    if (!this.#cursor) {
      this.#readout.set(HINT);
      return;
    }
    const { lane, ms } = this.#cursor;
    const index = this.#find(lane, ms);
    const slot = `Slot ${lane + 1}`;
    if (index < 0) {
      this.#readout.set(`${slot}: free at ${span(ms)}`);
      return;
    }
    const [, start = 0, end = 0, column = 0, kind = 0] = this.#spans.subarray(STRIDE * index, STRIDE * (index + 1));
    const until = this.#goesOn(index) ? `for ${span(this.#now - start)} so far` : `for ${span(end - start)}`;
    this.#readout.set(`${slot}: ${this.#layout.columns[column]?.name ?? "?"}, ${KINDS[kind] ?? "?"}, from ${span(start)} ${until}`);
  }

  #listen() {
    const plot = this.#plot;
    plot.addEventListener("pointermove", (event) => this.#point(event));
    plot.addEventListener("pointerleave", () => this.#moveTo(undefined));
    plot.addEventListener("blur", () => this.#moveTo(undefined));
    const hasGestured = listen(plot, {
      zoom: (factor, left) => this.#zoom(factor, this.#painter.at(left, 0).ms),
      pan: (pixels) => this.#move(() => this.#timeline.pan((-pixels / Math.max(1, plot.clientWidth)) * this.#timeline.span)),
    });
    plot.addEventListener("click", (event) => {
      if (hasGestured()) return;
      this.#point(event);
      this.#ask();
    });
    plot.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      if (!this.#press(event.key, event.shiftKey)) return;
      event.preventDefault();
      this.#spoken.set(this.#readout.text);
    });
  }

  #zoomButtons() {
    const button = (text: string, name: string, factor: number) => {
      const made = make("button", { type: "button", "aria-label": name, title: name }, text);
      made.addEventListener("click", () => this.#zoom(factor, this.#cursor?.ms ?? this.#timeline.to));
      return made;
    };
    this.#follow.addEventListener("click", () => this.#move(() => this.#timeline.reset()));
    return make("div", { class: "switch", role: "group", "aria-label": "Time shown in the worker slots" }, button("−", "Show more time", ZOOM), button("+", "Show less time", 1 / ZOOM), this.#follow);
  }

  #zoom(factor: number, around: number) {
    this.#move(() => this.#timeline.zoom(factor, Math.min(around, this.#now)));
  }

  /** Shows another stretch of time. */
  #move(change: () => void) {
    change();
    const { isUsual, from } = this.#timeline;
    this.#follow.disabled = isUsual;
    const needed = this.#now - from;
    if (isUsual ? this.#askedMs > 0 : needed > Math.max(this.#knownMs, this.#askedMs)) {
      this.#askedMs = isUsual ? 0 : needed * SPARE;
      this.#on.past(isUsual ? undefined : this.#askedMs);
    }
    this.#paint();
  }

  #point(event: PointerEvent | MouseEvent) {
    const { left, top } = this.#plot.getBoundingClientRect();
    this.#moveTo(this.#painter.at(event.clientX - left, event.clientY - top));
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
        this.#zoom(key === "-" ? ZOOM : 1 / ZOOM, this.#cursor?.ms ?? this.#timeline.to);
        return true;
      case "0":
        this.#move(() => this.#timeline.reset());
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
      if (this.#spans[STRIDE * index] !== lane || index === present) continue;
      const start = this.#spans[STRIDE * index + 1] ?? 0;
      const end = this.#goesOn(index) ? this.#now : (this.#spans[STRIDE * index + 2] ?? 0);
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
    const isPast = index >= 0 ? !this.#goesOn(index) : ms < this.#now - this.#timeline.span / Math.max(1, this.#plot.clientWidth);
    this.#on.why({ lane }, isPast ? { at: ms, steps: this.#stepsAround(lane, index) } : undefined);
  }

  /** What the task of a span went through in its slot: all spans that join it. */
  #stepsAround(lane: number, index: number) {
    const spanAt = (at: number) => this.#spans.subarray(STRIDE * at, STRIDE * (at + 1));
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

  #key() {
    const items = [
      ["calling", "call out"],
      ["waiting", "waiting for a call"],
      ["local", "local work"],
    ].map(([name, words]) => make("li", {}, make("span", { class: `swatch lane-${name}`, "aria-hidden": "true" }), String(words)));
    return make("ul", { class: "legend", "aria-label": "How to read the worker slots" }, ...items);
  }
}
