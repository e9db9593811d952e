// A panel per provider: its figures, its chart, the slider beside the chart that moves its true capacity, and
// the troubles a person can make for it.
import { flushSync } from "svelte";
import { useInWords } from "../utilisation.ts";
import type { Axes } from "./axes.ts";
import { OUT_OF_SIGHT_MS, Panel, READABLE_MS } from "./panel.ts";
import { ProviderChart } from "./provider-chart.ts";
import ProvidersView from "./Providers.svelte";
import { watchVisibility } from "./visibility.ts";
import type { On, View } from "./view.ts";
import type { Layout, ProviderSample } from "../pkg/tidegate_playground.js";

/** How many charts are drawn in one frame. */
const CHARTS = 2;
/** Providers that are shown at most, the first ones. */
const MOST = 12;

/** The figures of one instant. */
interface ProviderShown {
  sample: ProviderSample;
  /** Virtual time in ns. */
  now: number;
  /** The share of what it could serve that was used, in words. */
  used: string;
}

export class ProviderPanel {
  name;
  index;
  shown = $state.raw<ProviderShown | undefined>();
  /** What is under the pointer, in words. */
  readout = $state("");
  /** Where the plot lies within the chart, in CSS pixels. */
  plot = $state.raw({ top: 0, height: 0 });
  /** What the slider says: the true capacity, or what a person has just set. */
  capacity = $state(0);
  /** The top of the value axis, where the slider ends. */
  top = $state(1);
  /** Whether a person holds the slider. */
  isHeld = false;
  /** The last capacity that the slider has followed. */
  #followed: number | undefined;
  #chart: ProviderChart | undefined;
  #axes;
  #appeared;
  #isVisible = true;
  #drawnAt = Number.NEGATIVE_INFINITY;
  #sample: ProviderShown | undefined;

  /** @param appeared its chart comes into sight */
  constructor(name: string, index: number, axes: Axes, appeared: () => void) {
    this.name = name;
    this.index = index;
    this.#axes = axes;
    this.#appeared = appeared;
  }

  /** Makes the chart, in the size that its element has. */
  open = (element: HTMLElement) => {
    const chart = new ProviderChart(this.#axes, this.index, this.name, element, (text) => (this.readout = text), (top, height) => (this.plot = { top, height }));
    const visibility = watchVisibility(element, (isVisible) => {
      this.#isVisible = isVisible;
      if (isVisible) this.#appeared();
    });
    this.#chart = chart;
    return () => {
      visibility.disconnect();
      chart.destroy();
    };
  };

  take(view: View) {
    const sample = view.sample.providers[this.index];
    if (sample) {
      const provider = { ...view.columns(this.index), accepted: sample.accepted, limits: view.models?.[this.index]?.provider };
      this.#sample = { sample, now: view.sample.at, used: useInWords(provider, view.times) };
    }
    this.#chart?.take(view);
  }

  drawFigures() {
    this.shown = this.#sample;
    this.top = this.#chart?.top ?? this.top;
    // The slider follows the capacity when that moves, unless a person holds it.
    const capacity = this.#sample?.sample.capacity;
    if (capacity !== undefined && capacity !== this.#followed && !this.isHeld) this.capacity = this.#followed = capacity;
  }

  get isStale() {
    return this.#chart?.isStale ?? false;
  }

  /**
   * Whether the chart has something new and its turn has come.
   * @param now as `performance.now()` counts
   */
  isDue(now: number) {
    return this.isStale && (this.#isVisible || now - this.#drawnAt >= OUT_OF_SIGHT_MS);
  }

  drawChart(now: number) {
    this.#drawnAt = now;
    this.#chart?.draw();
  }

  /** What is shown is another stretch of time. */
  turn() {
    if (this.#chart) this.#chart.isStale = true;
  }

  recolour() {
    this.#chart?.recolour();
  }
}

export class ProviderPanels extends Panel {
  restMs = 0;
  panels: ProviderPanel[];
  /** Whether the charts show only the latest stretch. */
  follows = $state(false);
  #next = 0;
  #figuresAreStale = false;
  #figuresAt = Number.NEGATIVE_INFINITY;
  #axes;

  /** @param axes those of a dashboard beside this one, if there is one */
  constructor(parent: Element, layout: Layout, on: On, axes: Axes) {
    super();
    this.#axes = axes;
    this.follows = axes.follows;
    this.panels = layout.providers.slice(0, MOST).map(({ name }, index) => new ProviderPanel(name, index, axes, () => this.draw(0)));
    axes.onTurn(() => {
      this.follows = axes.follows;
      for (const panel of this.panels) panel.turn();
      this.draw(Number.POSITIVE_INFINITY);
    });
    this.mount(ProvidersView, parent, { layout, panels: this, on });
  }

  /** Shows the latest stretch, or the whole run, everywhere. */
  turn(follows: boolean) {
    this.#axes.turn(follows);
  }

  /** @override */
  take(view: View) {
    this.#axes.reach(this, view.sample.at / 1e6);
    for (const panel of this.panels) panel.take(view);
    this.isStale = this.#figuresAreStale = true;
  }

  /**
   * All figures, then charts in turn.
   * @override
   */
  draw(until: number) {
    const now = performance.now();
    if (this.#figuresAreStale && (now - this.#figuresAt >= READABLE_MS || until === Number.POSITIVE_INFINITY)) {
      for (const panel of this.panels) panel.drawFigures();
      flushSync();
      this.#figuresAreStale = false;
      this.#figuresAt = now;
    }
    let left = until === Number.POSITIVE_INFINITY ? this.panels.length : CHARTS;
    for (let tries = this.panels.length; tries > 0 && left > 0; tries -= 1) {
      const panel = this.panels[this.#next];
      this.#next = (this.#next + 1) % this.panels.length;
      if (!panel?.isDue(now)) continue;
      panel.drawChart(now);
      left -= 1;
      if (performance.now() >= until) break;
    }
    this.isStale = this.#figuresAreStale || this.panels.some((panel) => panel.isStale);
  }

  /** @override */
  recolour() {
    for (const panel of this.panels) panel.recolour();
  }
}

