// A panel per provider: its figures, its chart, the slider beside the chart that moves its true capacity, and the
// troubles a person can make for it. The slider's thumb lies at the height of the capacity line.
import { count, percent, span } from "../format.ts";
import { usedShare } from "../utilisation.ts";
import { Axes } from "./axes.ts";
import { Figure, Flag, make, section, shownOf, Text, UNBOUNDED, watchVisibility, explainButton } from "./dom.ts";
import { OUT_OF_SIGHT_MS, Panel, READABLE_MS } from "./panel.ts";
import { ProviderChart } from "./provider-chart.ts";
import type { On, View } from "./view.ts";
import type { Layout, ProviderSample } from "../pkg/tidegate_playground.js";

/** Twice the slider's padding at each end: the thumb's diameter. Kept equal to `--thumb` in style.css. */
const THUMB = 20;
/** How many charts are drawn in one frame. */
const CHARTS = 2;
/** Providers that are shown at most, the first ones. */
const MOST = 12;
/** With more providers than this, each has less room. */
const MANY = 4;
/** A burst of 429 and a slow patch, as the buttons make them: ms of virtual time, and times the usual latency. */
const BURST_MS = 3_000;
const SLOW_MS = 10_000;
const SLOW_FACTOR = 4;

const FIGURES = [
  ["in_flight", "calls in flight"],
  ["limit", "limit"],
  ["capacity", "can take"],
  ["waiting", "waiting"],
  ["refused", "429s"],
] as const;

/**
 * Not a whole word per frame: what is left of something that ends.
 * @param now both in ns
 */
const left = (until: number | null, now: number) => (until !== null && until > now ? span((until - now) / 1e6) : "");

class ProviderPanel {
  element;
  chart;
  #name;
  #index;
  #figures = FIGURES.map(([field]) => new Figure(field));
  #status = new Text(make("p", { class: "provider-status", "data-status": "" }));
  #used = new Text(make("p", { class: "soft provider-used" }));
  #cooldown = new Text(make("span"));
  #cools;
  #slider = make("input", { class: "capacity", type: "range", min: "0", step: "1", "aria-orientation": "vertical" });
  #release = make("button", { class: "small", type: "button", disabled: "" }, "Give capacity back");
  #isVisible = true;
  #drawnAt = Number.NEGATIVE_INFINITY;
  #capacity = -1;
  #isHeld = false;
  #top = 0;
  /** The share of the true capacity that was used, 0 to 1; NaN before the start. */
  #share = Number.NaN;
  #sample: ProviderSample | undefined;
  /** Virtual time in ns. */
  #now = 0;
  #visibility;

  constructor(parent: HTMLElement, name: string, index: number, on: On, axes: Axes, appeared: () => void) {
    this.#name = name;
    this.#index = index;
    const plot = make("div", { class: "chart", role: "img", "aria-label": `Chart of ${name}: limit, calls in flight and true capacity over virtual time` });
    const readout = new Text(make("p", { class: "readout" }));
    this.element = make(
      "article",
      { class: "provider", "data-provider": name, "aria-label": `Provider ${name}` },
      make("header", {}, make("h3", {}, explainButton("provider-name", () => on.why({ provider: index }), name)), this.#used.element, this.#status.element, this.#list()),
      make("div", { class: "provider-plot" }, plot, this.#slider),
      make("footer", {}, readout.element, this.#troubles(on)),
    );
    this.#cools = new Flag(this.element, "cools");
    this.#slider.setAttribute("aria-label", `True capacity of ${name}`);
    this.#listen(on);
    // First into the document: the chart is made in the size that it is shown in.
    parent.append(this.element);
    this.chart = new ProviderChart(axes, index, name, plot, readout, (top, height) => {
      this.#slider.style.marginTop = `${top - THUMB / 2}px`;
      this.#slider.style.height = `${height + THUMB}px`;
    });
    this.#visibility = watchVisibility(plot, (visible) => {
      this.#isVisible = visible;
      if (visible) appeared();
    });
  }

  #list() {
    const list = FIGURES.map(([field, words], index) => {
      return make("div", { class: `key-${field.replace("_", "-")}` }, make("dt", {}, words), make("dd", {}, this.#figures[index]?.element));
    });
    // With the marks of what the chart draws, the figures are its legend.
    const cooldown = make("div", { class: "key-cooling" }, make("dt", {}, "cooldown"), make("dd", {}, this.#cooldown.element));
    return make("dl", {}, ...list, cooldown);
  }

  #troubles(on: On) {
    const model = this.#name;
    const button = (trouble: string, text: string, title: string, act: () => void) => {
      const made = make("button", { class: "small", type: "button", title, "data-trouble": trouble }, text);
      made.addEventListener("click", act);
      return made;
    };
    const group = make(
      "div",
      { class: "troubles", role: "group", "aria-label": `Trouble for ${model}` },
      button("zero", "Drop to zero", "It takes no call at all until you give the capacity back", () => on.change({ set: "capacity", model, slots: 0 })),
      button("refuse", "429 burst", `It refuses every call for ${span(BURST_MS)}`, () => on.change({ set: "refuse", model, for_ms: BURST_MS })),
      button("slow", "Slow patch", `Calls take ${SLOW_FACTOR} times as long for ${span(SLOW_MS)}`, () => on.change({ set: "slow", model, factor: SLOW_FACTOR, for_ms: SLOW_MS })),
      this.#release,
    );
    return group;
  }

  #listen(on: On) {
    const slider = this.#slider;
    slider.addEventListener("input", () => {
      this.#say(slider.valueAsNumber);
      on.capacity(this.#index, slider.valueAsNumber);
    });
    slider.addEventListener("pointerdown", () => (this.#isHeld = true));
    for (const end of ["pointerup", "pointercancel", "blur"]) slider.addEventListener(end, () => (this.#isHeld = false));
    this.#release.addEventListener("click", () => {
      slider.focus();
      on.capacity(this.#index, undefined);
    });
  }

  take(view: View) {
    this.#sample = view.sample.providers[this.#index];
    this.#share = usedShare([view.columns(this.#index)], view.times);
    this.#now = view.sample.at;
    this.chart.take(view);
  }

  drawFigures() {
    const sample = this.#sample;
    const now = this.#now;
    if (!sample) return;
    for (let index = 0; index < FIGURES.length; index += 1) {
      this.#figures[index]?.set(sample[FIGURES[index]?.[0] ?? "limit"]);
    }
    this.#used.set(Number.isNaN(this.#share) ? "" : `${percent(this.#share, 1)} of the capacity used`);
    this.#status.set(status(sample, now));
    this.#cooldown.set(left(sample.cooldown_until, now) || "–");
    this.#cools.set(sample.cooldown_until !== null && sample.cooldown_until > now);
    if (this.#release.disabled === sample.changed) this.#release.disabled = !sample.changed;
    this.#follow(sample.capacity);
  }

  /**
   * Whether the chart has something new and its turn has come.
   * @param now as `performance.now()` counts
   */
  isDue(now: number) {
    return this.chart.isStale && (this.#isVisible || now - this.#drawnAt >= OUT_OF_SIGHT_MS);
  }

  drawChart(now: number) {
    this.#drawnAt = now;
    this.chart.draw();
  }

  destroy() {
    this.#visibility.disconnect();
    this.chart.destroy();
    this.element.remove();
  }

  /** Keeps the thumb at the height of the capacity line when that moves, unless a person holds it. */
  #follow(capacity: number) {
    if (this.chart.top !== this.#top) {
      this.#top = this.chart.top;
      this.#slider.max = String(this.#top);
    }
    if (capacity === this.#capacity || this.#isHeld) return;
    this.#capacity = capacity;
    this.#slider.value = String(Math.min(capacity, this.#top));
    this.#say(capacity);
  }

  #say(capacity: number) {
    const taken = capacity < UNBOUNDED ? `${count(capacity)} calls` : "any number of calls";
    this.#slider.setAttribute("aria-valuetext", `${this.#name} can take ${taken} at once`);
  }
}

/** What is out of the ordinary with a provider, and for how much longer. */
function status(sample: ProviderSample, now: number) {
  const refusing = left(sample.refusing_until, now);
  const slow = left(sample.slow_until, now);
  let words = refusing && `429 burst, ${refusing} left`;
  if (slow) words += `${words && " · "}slow patch, ${slow} left`;
  return words;
}

export class ProviderPanels extends Panel {
  restMs = 0;
  #panels: ProviderPanel[] = [];
  #next = 0;
  #figuresAreStale = false;
  #figuresAt = Number.NEGATIVE_INFINITY;
  #axes;

  /** @param axes those of a dashboard beside this one, if there is one */
  constructor(parent: HTMLElement, layout: Layout, on: On, axes: Axes = new Axes()) {
    const { element, head } = section("provider-panels", "Providers", "Drag the slider beside a chart: the limit finds what the provider can take");
    super(element, parent);
    this.#axes = axes;
    const grid = make("div", { class: layout.providers.length > MANY ? "providers many" : "providers" });
    head.append(this.#stretch());
    element.append(grid);
    const rest = shownOf(MOST, layout.providers.length, "providers");
    if (rest) element.append(rest);
    // A run without a model has nothing to show here.
    element.hidden = layout.providers.length === 0;
    this.#panels = layout.providers.slice(0, MOST).map(({ name }, index) => new ProviderPanel(grid, name, index, on, axes, () => this.draw(0)));
  }

  /** @override */
  take(view: View) {
    this.#axes.reach(this, view.sample.at / 1e6);
    for (const panel of this.#panels) panel.take(view);
    this.isStale = this.#figuresAreStale = true;
  }

  /**
   * All figures, then charts in turn.
   * @override
   */
  draw(until: number) {
    const now = performance.now();
    if (this.#figuresAreStale && (now - this.#figuresAt >= READABLE_MS || until === Number.POSITIVE_INFINITY)) {
      for (const panel of this.#panels) panel.drawFigures();
      this.#figuresAreStale = false;
      this.#figuresAt = now;
    }
    let left = until === Number.POSITIVE_INFINITY ? this.#panels.length : CHARTS;
    for (let tries = this.#panels.length; tries > 0 && left > 0; tries -= 1) {
      const panel = this.#panels[this.#next];
      this.#next = (this.#next + 1) % this.#panels.length;
      if (!panel?.isDue(now)) continue;
      panel.drawChart(now);
      left -= 1;
      if (performance.now() >= until) break;
    }
    this.isStale = this.#figuresAreStale || this.#panels.some((panel) => panel.chart.isStale);
  }

  /** @override */
  recolour() {
    for (const panel of this.#panels) panel.chart.recolour();
  }

  /** @override */
  destroy() {
    for (const panel of this.#panels) panel.destroy();
    super.destroy();
  }

  /** The choice between the whole run and its latest stretch. */
  #stretch() {
    const choices = [["Whole run", false], ["Latest", true]].map(([text, follows]) => {
      const button = make("button", { type: "button", "aria-pressed": String(!follows) }, String(text));
      button.addEventListener("click", () => this.#axes.turn(Boolean(follows)));
      return { button, follows };
    });
    this.#axes.onTurn(() => {
      for (const { button, follows } of choices) button.setAttribute("aria-pressed", String(this.#axes.follows === follows));
      for (const panel of this.#panels) panel.chart.isStale = true;
      this.draw(Number.POSITIVE_INFINITY);
    });
    return make("div", { class: "switch", role: "group", "aria-label": "Time shown in the charts" }, ...choices.map(({ button }) => button));
  }
}
