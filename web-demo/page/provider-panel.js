// @ts-check
// One provider: its figures, its tide chart, and the slider beside the chart that moves its true capacity. The
// slider's thumb lies at the height of the capacity line.
import { count, percent, span } from "./format.js";
import { TideChart } from "./tide-chart.js";

/** @typedef {import("./pkg/tidegate_playground.js").ProviderSample} ProviderSample */

/** Twice the slider's padding at each end: the thumb's diameter. Kept equal to `--thumb` in style.css. */
const THUMB = 20;

/** The element of this kind below `root`. The page's own markup is known to have it.
 * @template {Element} T
 * @param {ParentNode} root @param {string} selector @param {new () => T} kind @returns {T} */
export function part(root, selector, kind) {
  const found = root.querySelector(selector);
  if (!(found instanceof kind)) throw new Error(`the page has no ${selector}`);
  return found;
}

export class ProviderPanel {
  element;
  chart;
  #name;
  #figures;
  #used;
  #cooldown;
  #tide;
  #release;
  /** Whether a person has taken the capacity over from the scenario. */
  #taken = false;
  #capacity = 0;

  /**
   * @param {string} name
   * @param {HTMLElement} parent
   * @param {(capacity: number | undefined) => void} onCapacity hears what a person wants; undefined gives it back
   */
  constructor(name, parent, onCapacity) {
    const template = part(document, "#provider-template", HTMLTemplateElement);
    this.element = part(/** @type {DocumentFragment} */ (template.content.cloneNode(true)), "article", HTMLElement);
    this.#name = name;
    this.element.dataset.provider = name;
    this.element.setAttribute("aria-label", `Provider ${name}`);
    part(this.element, "h2", HTMLElement).textContent = name;
    this.#figures = [.../** @type {NodeListOf<HTMLElement>} */ (this.element.querySelectorAll("dd[data-figure]"))];
    this.#used = part(this.element, ".used", HTMLElement);
    this.#cooldown = part(this.element, ".cooldown", HTMLElement);
    this.#tide = part(this.element, ".tide", HTMLInputElement);
    this.#release = part(this.element, ".release", HTMLButtonElement);
    this.#tide.setAttribute("aria-label", `True capacity of ${name}`);
    this.#tide.addEventListener("input", () => {
      this.#take(true);
      onCapacity(this.#tide.valueAsNumber);
    });
    this.#release.addEventListener("click", () => {
      this.#take(false);
      this.#tide.focus();
      onCapacity(undefined);
    });
    parent.append(this.element);
    const stage = part(this.element, ".chart", HTMLElement);
    stage.setAttribute("aria-label", `Tide chart of ${name}: limit, calls in flight and true capacity over virtual time`);
    this.chart = new TideChart(stage, part(this.element, ".readout", HTMLElement), (top, height) => {
      this.#tide.style.marginTop = `${top - THUMB / 2}px`;
      this.#tide.style.height = `${height + THUMB}px`;
    });
  }

  /** @param {ProviderSample} sample @param {number} now virtual time in ns
   * @param {Float64Array} times @param {import("./tide-chart.js").Columns} columns */
  show(sample, now, times, columns) {
    for (const figure of this.#figures) {
      const value = sample[/** @type {"limit"} */ (figure.dataset.figure)];
      figure.textContent = value < 2 ** 31 ? count(value) : "∞";
      figure.dataset.value = String(value);
    }
    const { busy_slot_ns: busy, idle_slot_ns: idle } = sample.idle;
    this.#used.textContent = `${percent(Number(busy), Number(busy + idle))} of the limit used`;
    const until = sample.cooldown_until;
    this.#cooldown.hidden = until === null || until <= now;
    this.#cooldown.textContent = until === null ? "" : `cooling down, ${span((until - now) / 1e6)} left`;
    this.chart.show(times, columns);
    this.#follow(sample.capacity);
  }

  destroy() {
    this.chart.destroy();
    this.element.remove();
  }

  /** @param {boolean} taken */
  #take(taken) {
    this.#taken = taken;
    this.#release.hidden = !taken;
  }

  /** Keeps the thumb at the height of the capacity line, unless a person holds it. @param {number} capacity */
  #follow(capacity) {
    this.#tide.max = String(this.chart.top);
    if (!this.#taken) this.#tide.value = String(Math.min(capacity, this.chart.top));
    if (capacity !== this.#capacity) {
      this.#capacity = capacity;
      this.#tide.setAttribute("aria-valuetext", `${this.#name} bears ${count(capacity)} calls at once`);
    }
  }
}
