// @ts-check
// What all parts of the stage have in common. Taking a view over and drawing it are apart, so that the stage can spread
// the drawing over several frames of the display when the machine is slow.

/** @typedef {import("./view").Component} Component */
/** @typedef {import("./view").View} View */

/** Figures are renewed no more often than this, in real ms: they could not be read, and laying text out costs. */
export const READABLE_MS = 66;

/** Pictures out of sight are drawn no more often than this, in real ms. */
export const OUT_OF_SIGHT_MS = 300;

/** @typedef {View["sample"]} Sample */

/** @implements {Component} */
export class Part {
  /** Whether a view has been taken that is not drawn yet. */
  isStale = false;

  /** At least so long between two drawings, in ms. */
  restMs = READABLE_MS;

  /** @type {HTMLElement} */
  element;

  /** @param {HTMLElement} element @param {HTMLElement} parent */
  constructor(element, parent) {
    this.element = element;
    parent.append(element);
  }

  /** Takes over what it needs of a view, at little cost; nothing else of the view is read later.
   * @param {View} _view */
  take(_view) {
    this.isStale = true;
  }

  /** Draws the view taken last, or a part of it: some step is always done, further ones until the clock says so.
   * @param {number} _until as `performance.now()` counts */
  draw(_until) {
    this.isStale = false;
  }

  /** @param {View} view */
  show(view) {
    this.take(view);
    this.draw(Number.POSITIVE_INFINITY);
  }

  recolour() {}

  destroy() {
    this.element.remove();
  }
}

/** A part that shows nothing but the newest sample. */
export class SamplePart extends Part {
  /** @type {Sample | undefined} */
  #sample;

  /** @override @param {View} view */
  take({ sample }) {
    this.#sample = sample;
    this.isStale = true;
  }

  /** @override @param {number} until */
  draw(until) {
    this.isStale = this.#sample !== undefined && this.drawSample(this.#sample, until);
  }

  /** Draws a sample. Returns whether some of it is left for the next frame.
   * @param {Sample} _sample @param {number} _until as for `draw` @returns {boolean} */
  drawSample(_sample, _until) {
    return false;
  }
}
