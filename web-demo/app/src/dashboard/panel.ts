// What all panels of the dashboard have in common. Taking a view over and drawing it are apart, so that the dashboard can spread
// the drawing over several frames of the display when the machine is slow.
import type { Component, View } from "./view.ts";

/** Figures are renewed no more often than this, in real ms: they could not be read, and laying text out costs. */
export const READABLE_MS = 66;

/** Pictures out of sight are drawn no more often than this, in real ms. */
export const OUT_OF_SIGHT_MS = 300;

export type Sample = View["sample"];

export class Panel implements Component {
  /** Whether a view has been taken that is not drawn yet. */
  isStale = false;

  /** At least so long between two drawings, in ms. */
  restMs = READABLE_MS;

  element: HTMLElement;

  constructor(element: HTMLElement, parent: HTMLElement) {
    this.element = element;
    parent.append(element);
  }

  /** Takes over what it needs of a view, at little cost; nothing else of the view is read later. */
  take(_view: View) {
    this.isStale = true;
  }

  /**
   * Draws the view taken last, or a part of it: some step is always done, further ones until the clock says so.
   * @param _until as `performance.now()` counts
   */
  draw(_until: number) {
    this.isStale = false;
  }

  show(view: View) {
    this.take(view);
    this.draw(Number.POSITIVE_INFINITY);
  }

  recolour() {}

  destroy() {
    this.element.remove();
  }
}

/** A part that shows nothing but the newest sample. */
export class SamplePanel extends Panel {
  #sample: Sample | undefined;

  /** @override */
  take({ sample }: View) {
    this.#sample = sample;
    this.isStale = true;
  }

  /** @override */
  draw(until: number) {
    this.isStale = this.#sample !== undefined && this.drawSample(this.#sample, until);
  }

  /**
   * Draws a sample. Returns whether some of it is left for the next frame.
   * @param _until as for `draw`
   */
  drawSample(_sample: Sample, _until: number): boolean {
    return false;
  }
}
