// Where each resource's slot-time went: busy, starved (idle while something wanted it) and with nothing to do (the core calls it frontier:
// nothing could have used it yet), with the main causes of the idle part in words.
import { Figure, make, section, shownOf, StackedBar, Text, explainButton } from "./dom.ts";
import { SamplePanel } from "./panel.ts";
import type { Sample } from "./panel.ts";
import type { On } from "./view.ts";
import type { IdleSplit as IdleShares, Layout, PlaygroundAbout as About } from "../pkg/tidegate_playground.js";

/** Resources that are shown at most, the first ones. */
const MOST = 16;
/** How many causes are named. */
const CAUSES = 3;
const PARTS = ["busy", "starved", "frontier"] as const;
const LABELS = { busy: "busy", starved: "starved", frontier: "nothing to do" };

/** A share of the whole as a whole percentage. */
const inPercent = (share: number) => `${Math.round(100 * share)} %`;

class Resource {
  element;
  #bar = new StackedBar("idle-stack", PARTS.length);
  #figures = PARTS.map((part) => new Figure(part, inPercent));
  #why = new Text(make("span", { class: "idle-why soft" }));
  #shares = [0, 0, 0];

  constructor(name: string, ask: () => void) {
    const figures = PARTS.map((part, index) => make("span", { class: `idle-figure key-${part}` }, this.#figures[index]?.element, ` ${LABELS[part]}`));
    this.element = explainButton(
      "idle-row",
      ask,
      make("strong", { class: "idle-name" }, name),
      this.#bar.element,
      make("span", { class: "idle-figures" }, ...figures),
      this.#why.element,
    );
  }

  show(idle: IdleShares) {
    const whole = idle.busy + idle.starved + idle.frontier;
    for (let index = 0; index < PARTS.length; index += 1) {
      const share = whole > 0 ? idle[PARTS[index] ?? "busy"] / whole : 0;
      this.#shares[index] = share;
      this.#figures[index]?.set(share);
    }
    this.#bar.show(this.#shares, 1);
    this.#why.set(causes(idle));
  }
}

const wasIdle = ({ starved, frontier }: IdleShares) => starved + frontier > 0;

function causes({ why }: IdleShares) {
  let words = "";
  for (let index = 0; index < why.length && index < CAUSES; index += 1) {
    const one = why[index];
    if (!one || one.share < 0.005) break;
    words += `${words ? " · " : "Idle: "}${one.words} ${inPercent(one.share)}`;
  }
  return words || "Never idle so far";
}

export class IdleSplit extends SamplePanel {
  #list = make("div", { class: "idle-list" });
  /** In place of the list, while there is nothing to split. */
  #never = make("p", { class: "dashboard-foot" }, "No slot has been idle so far.");
  #resources: Resource[] = [];
  #names: string[] = [];
  #on;
  #layout;

  constructor(parent: HTMLElement, layout: Layout, on: On) {
    const { element } = section("idle", "Idle time", "Of all slots up to each cap: busy, starved (free while a task or call waits), or with nothing to do");
    super(element, parent);
    element.append(this.#list, this.#never);
    this.#on = on;
    this.#layout = layout;
  }

  /** @override */
  drawSample(sample: Sample) {
    // The account names its resources once the run has begun.
    if (Math.min(MOST, sample.idle.length) !== this.#names.length) this.#rebuild(sample.idle);
    const isSplit = sample.idle.some(wasIdle);
    this.#list.hidden = !isSplit;
    this.#never.hidden = isSplit;
    for (let index = 0; index < this.#resources.length; index += 1) {
      const idle = sample.idle[index];
      if (idle) this.#resources[index]?.show(idle);
    }
    return false;
  }

  #rebuild(idle: readonly IdleShares[]) {
    this.#names = idle.slice(0, MOST).map(({ name }) => name);
    this.#resources = this.#names.map((name) => new Resource(name, () => this.#on.why(this.#about(name))));
    this.#list.replaceChildren(...this.#resources.map((resource) => resource.element));
    const rest = shownOf(this.#names.length, idle.length, "resources");
    if (rest) this.#list.append(rest);
  }

  #about(name: string): About {
    const provider = this.#layout.providers.findIndex((one) => one.name === name);
    if (provider >= 0) return { provider };
    return { slots: Math.max(0, this.#layout.slots.findIndex((one) => one.name === name)) };
  }
}
