// @ts-check
// Elements that a frame may touch sixty times a second: each writes to the document only what has changed, and none
// reads the layout.
import { count } from "../format.js";

/** Capacities and limits from here up mean "no bound". */
export const UNBOUNDED = 2 ** 31;

/** @typedef {Node | string | undefined | false} Child */

/**
 * Makes an element. `class` and `text` mean what they say, `on…` would break the page's policy and is not offered,
 * everything else is an attribute.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag @param {Record<string, string>} [attributes] @param {Child[]} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  for (const child of children) if (child) element.append(child);
  return element;
}

/** A button that asks why something waits. @param {string} kind its class @param {() => void} ask @param {Child[]} children */
export function whyButton(kind, ask, ...children) {
  const button = make("button", { class: `why ${kind}`, type: "button", title: "Why?" }, ...children);
  button.append(make("span", { class: "visually-hidden" }, " Why does it wait?"));
  button.addEventListener("click", ask);
  return button;
}

/** A heading for one part of the stage, with a few words that say how to read it.
 * @param {string} name the part's class @param {string} title @param {string} hint */
export function section(name, title, hint) {
  const heading = make("h2", {}, title);
  const head = make("header", { class: "stage-head" }, heading, make("p", { class: "stage-hint" }, hint));
  const element = make("section", { class: `panel stage-part ${name}`, "aria-label": title }, head);
  return { element, head };
}

/** Text that is written only when it differs. */
export class Text {
  element;
  #last = "";

  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
  }

  /** @param {string} text */
  set(text) {
    if (text === this.#last) return;
    this.#last = text;
    this.element.textContent = text;
  }
}

/** A number a person reads, with the exact one in `data-value`. */
export class Figure {
  element;
  #last = Number.NaN;
  #words;

  /** @param {string} name what it counts, in `data-figure` @param {(value: number) => string} [words] */
  constructor(name, words = count) {
    this.element = make("span", { class: "number", "data-figure": name });
    this.#words = words;
  }

  /** @param {number} value */
  set(value) {
    if (value === this.#last) return;
    this.#last = value;
    this.element.textContent = value >= UNBOUNDED ? "∞" : this.#words(value);
    this.element.dataset.value = String(value);
  }
}

/** A class that is on or off. */
export class Flag {
  #element;
  #name;
  #on = false;

  /** @param {HTMLElement} element @param {string} name */
  constructor(element, name) {
    this.#element = element;
    this.#name = name;
  }

  /** @param {boolean} on */
  set(on) {
    if (on === this.#on) return;
    this.#on = on;
    this.#element.classList.toggle(this.#name, on);
  }
}

/** A bar of stacked parts. Each part covers the whole bar and is clipped, which costs no layout and squeezes no stripes. */
export class StackedBar {
  element;
  #parts;
  #places;

  /** @param {readonly string[]} parts their classes, from the left */
  constructor(parts) {
    this.#parts = parts.map((name) => make("span", { class: `share ${name}` }));
    this.#places = new Int32Array(2 * parts.length).fill(-1);
    this.element = make("span", { class: "stack", "aria-hidden": "true" }, ...this.#parts);
  }

  /** Shows one part between two points. @param {number} index the part's place in the constructor's list @param {number} from @param {number} to both as shares of the whole */
  place(index, from, to) {
    // To a quarter of a thousandth: less than a pixel of any bar.
    const start = Math.round(4000 * from);
    const length = Math.round(4000 * to) - start;
    if (this.#places[2 * index] === start && this.#places[2 * index + 1] === length) return;
    this.#places[2 * index] = start;
    this.#places[2 * index + 1] = length;
    const part = this.#parts[index];
    if (part) part.style.clipPath = `inset(0 ${100 - (start + length) / 40}% 0 ${start / 40}%)`;
  }

  /** Lays the parts out one after the other. @param {readonly number[]} values @param {number} whole */
  show(values, whole) {
    let from = 0;
    for (let index = 0; index < values.length; index += 1) {
      const to = from + (values[index] ?? 0) / Math.max(whole, 1e-9);
      this.place(index, from, to);
      from = to;
    }
  }
}

/** Tells a component whether it can be seen: what cannot need not be drawn.
 * @param {Element} element @param {(visible: boolean) => void} changed */
export function watchVisibility(element, changed) {
  const observer = new IntersectionObserver((entries) => changed(entries.at(-1)?.isIntersecting ?? true), { rootMargin: "100px" });
  observer.observe(element);
  return observer;
}
