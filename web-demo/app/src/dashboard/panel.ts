// What all panels of the dashboard have in common. Taking a view over and drawing it are apart, so that the
// dashboard can spread the drawing over several frames of the display when the machine is slow.
import { flushSync, mount, unmount } from "svelte";
import type { Component } from "svelte";
import { Latest } from "./latest.svelte.ts";
import type { On, View } from "./view.ts";
import type { Layout } from "../pkg/tidegate_playground.js";

/**
 * Figures are renewed no more often than this, in real ms: they could not be read, and laying text out costs.
 */
export const READABLE_MS = 66;

/** Pictures out of sight are drawn no more often than this, in real ms. */
export const OUT_OF_SIGHT_MS = 300;

export type Sample = View["sample"];

/** A Svelte component that is drawn when the dashboard says so. */
export abstract class Panel {
  /** Whether a view has been taken that is not drawn yet. */
  isStale = false;

  /** At least so long between two drawings, in ms. */
  restMs = READABLE_MS;

  #mounted: Record<string, unknown> = {};

  /** Puts the component into the page. */
  protected mount<Props extends Record<string, unknown>>(component: Component<Props>, parent: Element, props: Props) {
    this.#mounted = mount(component, { target: parent, props });
    // Its pictures are there from now on.
    flushSync();
  }

  /** Takes over what it needs of a view, at little cost; nothing else of the view is read later. */
  abstract take(view: View): void;

  /**
   * Draws the view taken last, or a part of it: some step is always done, further ones until the clock says
   * so.
   * @param until as `performance.now()` counts
   */
  abstract draw(until: number): void;

  recolour() {}

  destroy() {
    void unmount(this.#mounted);
  }
}

export interface SampleProps extends Record<string, unknown> {
  layout: Layout;
  on: On;
  latest: Latest<Sample>;
}

/** A part that shows nothing but the newest sample. */
export class SamplePanel extends Panel {
  #latest = new Latest<Sample>();
  #sample: Sample | undefined;

  constructor(component: Component<SampleProps>, parent: Element, layout: Layout, on: On) {
    super();
    this.mount(component, parent, { layout, on, latest: this.#latest });
  }

  /** @override */
  take({ sample }: View) {
    this.#sample = sample;
    this.isStale = true;
  }

  /** @override */
  draw() {
    this.#latest.value = this.#sample;
    // Now, so that the dashboard can see what it took.
    flushSync();
    this.isStale = false;
  }
}
