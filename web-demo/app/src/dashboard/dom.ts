// Elements that a frame may touch sixty times a second: each writes to the document only what has changed, and none
// reads the layout.
import { count } from "../format.ts";

/** Capacities and limits from here up mean "no bound". */
export const UNBOUNDED = 2 ** 31;

export type Child = Node | string | undefined | false;

/**
 * Makes an element. `class` and `text` mean what they say, `on…` would break the page's policy and is not offered,
 * everything else is an attribute.
 */
export function make<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Record<string, string> = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  for (const child of children) if (child) element.append(child);
  return element;
}

/**
 * A button that asks why something waits.
 * @param kind its class
 */
export function explainButton(kind: string, ask: () => void, ...children: Child[]) {
  const button = make("button", { class: `explain ${kind}`, type: "button", title: "Why?" }, ...children);
  button.append(make("span", { class: "visually-hidden" }, " Why does it wait?"));
  button.addEventListener("click", ask);
  return button;
}

/**
 * A heading for one part of the dashboard, with a few words that say how to read it.
 * @param name the part's class
 */
export function section(name: string, title: string, hint: string) {
  const heading = make("h2", {}, title);
  const head = make("header", { class: "dashboard-head" }, heading, make("p", { class: "dashboard-hint" }, hint));
  const element = make("section", { class: `panel dashboard-panel ${name}`, "aria-label": title }, head);
  return { element, head };
}

/** Says how many there are, where not all of them are shown. */
export function shownOf(shown: number, all: number, things: string) {
  return shown < all && make("p", { class: "dashboard-foot" }, `${count(shown)} of ${count(all)} ${things} are shown.`);
}

/** Text that is written only when it differs. */
export class Text {
  element;
  #last = "";

  constructor(element: HTMLElement) {
    this.element = element;
  }

  get text() {
    return this.#last;
  }

  set(text: string) {
    if (text === this.#last) return;
    this.#last = text;
    this.element.textContent = text;
  }
}

/**
 * A number a person reads, with the exact one in `data-value`. Its box is as wide as the longest text so far and is laid
 * out by itself: a new number moves nothing around it, and costs no more than itself.
 */
export class Figure {
  element;
  #last = Number.NaN;
  #words;
  #width = 1;

  /** @param name what it counts, in `data-figure` */
  constructor(name: string, words: (value: number) => string = count) {
    this.element = make("span", { class: "number", "data-figure": name });
    this.#words = words;
  }

  set(value: number) {
    if (value === this.#last) return;
    this.#last = value;
    const text = value >= UNBOUNDED ? "∞" : this.#words(value);
    if (this.element.textContent !== text) this.element.textContent = text;
    this.element.dataset.value = String(value);
    const width = widthOf(text);
    if (width <= this.#width) return;
    this.#width = width;
    this.element.style.width = `${width}ch`;
  }
}

/** About how wide a number's text is, in digits. */
function widthOf(text: string) {
  let width = 0;
  for (const character of text) width += character >= "0" && character <= "9" ? 1 : ",. ".includes(character) ? 0.5 : 1.5;
  return width;
}

/** A class that is on or off. */
export class Flag {
  #element;
  #name;
  #on = false;

  constructor(element: HTMLElement, name: string) {
    this.#element = element;
    this.#name = name;
  }

  set(on: boolean) {
    if (on === this.#on) return;
    this.#on = on;
    this.#element.classList.toggle(this.#name, on);
  }
}

/** A bar of stacked parts: one element whose backgrounds lie over each other, the first in front, each from the left edge
 * to where its part ends. New ends cost neither layout nor layers. */
export class StackedBar {
  element;
  #ends;
  #last;

  /** @param kind its class, which has as many backgrounds as there are parts */
  constructor(kind: string, parts: number) {
    this.element = make("span", { class: `stack ${kind}`, "aria-hidden": "true" });
    this.#ends = new Int32Array(parts);
    this.#last = new Int32Array(parts).fill(-1);
  }

  /** Where a part ends, as a share of the whole; not before the part in front of it ends. */
  end(part: number, end: number) {
    // To half a thousandth: less than a pixel of most bars.
    this.#ends[part] = Math.max(Math.round(2_000 * end), part > 0 ? (this.#ends[part - 1] ?? 0) : 0);
  }

  /** Lays parts of these sizes out one after the other. */
  show(values: readonly number[], whole: number) {
    let end = 0;
    for (let part = 0; part < values.length; part += 1) this.end(part, (end += (values[part] ?? 0) / Math.max(whole, 1e-9)));
    this.draw();
  }

  draw() {
    let isChanged = false;
    let sizes = "";
    for (let part = 0; part < this.#ends.length; part += 1) {
      const end = this.#ends[part] ?? 0;
      if (end !== this.#last[part]) isChanged = true;
      this.#last[part] = end;
      sizes += `${part > 0 ? "," : ""}${end / 20}% 100%`;
    }
    if (isChanged) this.element.style.backgroundSize = sizes;
  }
}

/** Tells a component whether it can be seen: what cannot need not be drawn. */
export function watchVisibility(element: Element, changed: (visible: boolean) => void) {
  const observer = new IntersectionObserver((entries) => changed(entries.at(-1)?.isIntersecting ?? true), { rootMargin: "100px" });
  observer.observe(element);
  return observer;
}
