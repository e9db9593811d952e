// Two runs beside each other on the same seed: what differs is chosen here, and what comes of it said in numbers.
import { byId, make, say } from "../dom.ts";
import { betterOf, figuresOf, ROWS, verdict } from "./figures.ts";
import { complete } from "./sides.ts";
import type { Frame } from "../messages.ts";
import type { Simulation } from "../simulation.ts";
import type { Figures } from "./figures.ts";
import type { Choice } from "./sides.ts";

/** The table is filled this often, in real ms: figures that change faster cannot be read. */
const PAUSE_MS = 200;

/** Pairs worth a look, each on a scenario that shows what they differ in. */
const PAIRS: { label: string, scenario: string, choices: [Partial<Choice>, Partial<Choice>] }[] = [
  { label: "Fixed limit, AIMD", scenario: "tide", choices: [{ algorithm: "fixed", fixed: 32 }, { algorithm: "aimd" }] },
  { label: "AIMD, Tide", scenario: "tide", choices: [{ algorithm: "aimd" }, { algorithm: "tide" }] },
  { label: "No ramp, 10 s ramp", scenario: "cold-storm", choices: [{ ramp: 0 }, { ramp: 10_000 }] },
  { label: "Held slots, yielded slots", scenario: "cooldown/both", choices: [{ yields: "no", advisory: "no" }, { yields: "yes", advisory: "yes" }] },
  { label: "Strictly fair, borrowing", scenario: "storm", choices: [{ policy: "strict_fair" }, { policy: "bounded_borrow" }] },
];

const RAMPS = [0, 1_000, 2_500, 5_000, 10_000, 30_000];
const NAMES = ["Left", "Right"] as const;
const ALGORITHMS = { aimd: "AIMD", tide: "Tide", vegas: "Vegas", fixed: "a fixed limit" };

export class Compare {
  #simulation;
  /** Puts a side's choice into its controls. */
  #fillers: ((choice: Choice) => void)[] = [];
  #sides = make("div", { class: "sides" });
  #verdict = make("p", { class: "verdict", id: "verdict" });
  #rows = ROWS.map((row) => {
    const cells = [0, 1, 2].map(() => make("td"));
    return { row, cells, element: make("tr", { "data-figure": row.field }, make("th", { scope: "row" }, row.label), ...cells) };
  });
  #heads = [...document.querySelectorAll(".half-title")];
  #filledAt = 0;

  constructor(simulation: Simulation) {
    this.#simulation = simulation;
    const pairs = PAIRS.map(({ label, scenario, choices }) => {
      const button = make("button", { type: "button" }, label);
      button.addEventListener("click", () => void simulation.setChoices(() => [complete({ scenario, ...choices[0] }), complete({ scenario, ...choices[1] })]));
      return button;
    });
    const choose = make(
      "section",
      { class: "panel", "aria-label": "What differs" },
      make("h2", {}, "Two runs, one seed: what differs?"),
      make("div", { class: "pairs", role: "group", "aria-label": "Pairs worth a look" }, ...pairs),
      this.#sides,
    );
    const table = make(
      "table",
      {},
      make("caption", { class: "visually-hidden" }, "Both runs in numbers"),
      make("thead", {}, make("tr", {}, make("td"), ...[...NAMES, "Difference"].map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, ...this.#rows.map(({ element }) => element)),
    );
    const outcome = make("section", { class: "panel outcome", "aria-label": "The difference in numbers" }, this.#verdict, make("div", { class: "scroll" }, table));
    // What came of it is seen first in the charts.
    byId("compare").prepend(choose);
    byId("compare").append(outcome);
    simulation.on("loaded", () => this.#fillChoices());
    // What was refused does not stay in its control.
    simulation.on("refused", () => this.#fillChoices());
    simulation.on("frame", (frame) => this.#show(frame));
    this.#sides.replaceChildren(...NAMES.map((name, side) => this.#side(name, side)));
    this.#fillChoices();
  }

  #fillChoices() {
    this.#filledAt = 0;
    const titleOf = (name: string) => this.#simulation.scenarios.find((one) => one.name === name)?.title ?? name;
    this.#simulation.choices.forEach((choice, side) => {
      this.#fillers[side]?.(choice);
      const head = this.#heads[side];
      if (head) head.replaceChildren(make("strong", {}, NAMES[side] ?? ""), ` ${inWords(choice, titleOf)}`);
    });
  }

  #side(name: string, side: number) {
    const change = (part: Partial<Choice>) => {
      void this.#simulation.setChoices(([left, right]) => (side === 0 ? [{ ...left, ...part }, right] : [left, { ...right, ...part }]));
    };
    const asIs = { "": "as the scenario" };
    const yesNo = { ...asIs, yes: "yes", no: "no" };
    const suites = [...new Set(this.#simulation.scenarios.map(({ suite }) => suite))];
    const scenario = make("select", {}, new Option("the one above", ""));
    for (const suite of suites) {
      const options = this.#simulation.scenarios.filter((one) => one.suite === suite).map((one) => new Option(one.title, one.name));
      scenario.append(make("optgroup", { label: suite }, ...options));
    }
    const controls = {
      scenario,
      algorithm: select({ ...asIs, tide: "Tide", aimd: "AIMD", vegas: "Vegas", fixed: "fixed" }),
      fixed: make("input", { type: "number", min: "1", max: "100000", step: "1", required: "" }),
      policy: select({ ...asIs, bounded_borrow: "bounded borrowing", strict_fair: "strictly fair" }),
      ramp: select({ ...asIs, ...Object.fromEntries(RAMPS.map((ms) => [` ${ms}`, ms === 0 ? "none" : `${ms / 1000} s`])) }),
      advisory: select(yesNo),
      yields: select(yesNo),
    };
    for (const [field, control] of Object.entries(controls)) {
      control.addEventListener("change", () => {
        if (!control.reportValidity()) return;
        const { value } = control;
        change({ [field]: field === "fixed" || (field === "ramp" && value !== "") ? Number(value) : value });
      });
    }
    const fixed = labelled("Fixed at", controls.fixed);
    this.#fillers[side] = (choice) => {
      for (const [field, control] of Object.entries(controls)) {
        const value = choice[(field as keyof Choice)];
        control.value = field === "ramp" && value !== "" ? ` ${value}` : String(value);
      }
      fixed.hidden = choice.algorithm !== "fixed";
    };
    return make(
      "fieldset",
      { "data-side": String(side) },
      make("legend", {}, name),
      labelled("Scenario", scenario),
      labelled("Limit", controls.algorithm),
      fixed,
      labelled("Policy", controls.policy),
      labelled("Ramp", controls.ramp),
      labelled("Passes over waiters", controls.advisory),
      labelled("Yields while waiting", controls.yields),
    );
  }

  #show(frame: Frame) {
    const [left, right] = frame.sides;
    const now = performance.now();
    if (!left || !right || (frame.playing && now - this.#filledAt < PAUSE_MS)) return;
    this.#filledAt = now;
    const { fields, stride } = this.#simulation;
    const [one, other] = [left, right].map((picture) => {
      const numbers = new Float64Array(picture.telemetry);
      const column = (index: number) => numbers.subarray(index * stride, index * stride + picture.buckets);
      return figuresOf(picture, (field, provider) => column(1 + provider * fields.length + fields.indexOf(field)), column(0));
    });
    if (one && other) this.#fill(one, other);
  }

  #fill(left: Figures, right: Figures) {
    say(this.#verdict, verdict(left, right));
    for (const { row, cells, element } of this.#rows) {
      const [first, second, third] = cells;
      const values = [left[row.field], right[row.field]];
      const difference = (values[1] ?? 0) - (values[0] ?? 0);
      const better = betterOf(row, left, right);
      [first, second].forEach((cell, side) => {
        if (!cell) return;
        const value = values[side] ?? 0;
        const goesOn = row.field === "time" && !(side === 0 ? left : right).finished;
        say(cell, `${row.words(value)}${goesOn ? " …" : ""}`);
        cell.dataset.value = String(value);
        cell.classList.toggle("better", better === side);
      });
      if (!third) continue;
      const sign = difference < 0 ? "−" : "+";
      say(third, Number.isNaN(difference) || difference === 0 ? "–" : `${sign}${row.words(Math.abs(difference))}`);
      third.dataset.value = String(difference);
      element.toggleAttribute("data-differs", better !== undefined);
    }
  }
}

function select(options: Record<string, string>) {
  return make("select", {}, ...Object.entries(options).map(([value, text]) => new Option(text, value)));
}

function labelled(label: string, control: HTMLElement) {
  control.setAttribute("aria-label", label);
  return make("label", { class: "field" }, make("span", {}, label), control);
}

/** A side in a few words. */
function inWords(choice: Choice, titleOf: (name: string) => string) {
  const words = [
    choice.scenario && titleOf(choice.scenario),
    choice.algorithm && (choice.algorithm === "fixed" ? `${ALGORITHMS.fixed} of ${choice.fixed}` : ALGORITHMS[choice.algorithm]),
    choice.policy && (choice.policy === "strict_fair" ? "strictly fair" : "bounded borrowing"),
    choice.ramp !== "" && (choice.ramp > 0 ? `a ramp of ${choice.ramp / 1000} s` : "no ramp"),
    choice.advisory && (choice.advisory === "yes" ? "passes over tasks that would wait" : "does not pass over"),
    choice.yields && (choice.yields === "yes" ? "yields while waiting" : "does not yield"),
  ].filter((word) => word !== false && word !== "");
  return words.length > 0 ? words.join(", ") : "as the scenario has it";
}
