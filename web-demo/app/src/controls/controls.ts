// Controls of the scheduler's own settings, which take effect while the run goes on. What a provider can take is moved
// at its chart.
import { limitChoice, policyChoice } from "../compare/sides.ts";
import { byId, make, say } from "../dom.ts";
import { count } from "../format.ts";
import { MOST_GROUPS } from "../shown.ts";
import { settingsAt } from "./settings.ts";
import type { AimdConfig, Layout } from "../pkg/tidegate_playground.js";
import type { Simulation } from "../simulation.ts";
import type { ModelSettings, Settings } from "./settings.ts";

export type Put = (control: HTMLInputElement | HTMLSelectElement, value: string) => void;
/** The field of a group's weight. */
export type WeightField = { element: HTMLElement, fill: (put: Put) => void };

/** Milliseconds in a second. */
const SECOND = 1_000;

/** The number settings of AIMD: which field, how it is called, its default, its bounds, its step, and what one of it is. */
const AIMD = [
  { field: "ramp_ms", label: "Ramp (s)", usual: 0, min: 0, max: 600, step: 0.5, unit: SECOND },
  { field: "decrease_factor", label: "Cut to", usual: 0.75, min: 0.05, max: 0.95, step: 0.05, unit: 1 },
  { field: "increase_step", label: "Raise by", usual: 1, min: 1, max: 100, step: 1, unit: 1 },
  { field: "successes_until_increase", label: "Successes to raise", usual: 25, min: 1, max: 10_000, step: 1, unit: 1 },
  { field: "cooldown_ms", label: "Cooldown (s)", usual: 2 * SECOND, min: 0.1, max: 600, step: 0.1, unit: SECOND },
] as const;

/** Those that hold for every algorithm. */
const FOR_ANY: ReadonlySet<string> = new Set(["ramp_ms", "cooldown_ms"]);

export class Controls {
  #simulation;
  #parent = byId("live-controls");
  /** Puts the settings in force into the controls. */
  #fillers: ((settings: Settings, put: Put) => void)[] = [];
  #weightFields: WeightField[] = [];
  /** What of their names is looked for, where there are very many groups. */
  #groupsToShow = "";
  /** What the controls show. */
  #shown = "";

  constructor(simulation: Simulation) {
    this.#simulation = simulation;
    simulation.on("loaded", () => this.#build());
    simulation.on("frame", () => this.#fill());
    simulation.on("refused", () => this.#fillAnew());
  }

  #build() {
    const layout = this.#simulation.layouts[0];
    const isOne = this.#simulation.mode === "one";
    this.#fillers = [];
    this.#weightFields = [];
    this.#shown = "";
    if (!layout || !isOne) return;
    const parts = [this.#fairness(layout), ...layout.providers.map(({ name }) => this.#provider(name))];
    // Before they are in the page: there, each value would be laid out by itself.
    this.#fill();
    this.#parent.replaceChildren(...parts);
  }

  /** Shows what is in force now. */
  #fill(put = putUnlessInUse) {
    const { runs, changes, at, mode } = this.#simulation;
    const scenario = runs[0];
    if (!scenario || mode !== "one") return;
    const due = changes[0] ?? [];
    const key = due.filter((change) => change.at_ms <= at).length + "/" + due.length;
    if (key === this.#shown) return;
    this.#shown = key;
    const settings = settingsAt(scenario, due, at);
    for (const fill of this.#fillers) fill(settings, put);
    for (const { fill } of this.#weightFields) fill(put);
  }

  /** What was refused does not stay in its control, even where a person is still at it. */
  #fillAnew() {
    this.#shown = "";
    this.#fill(putAnyway);
  }

  #fairness(layout: Layout) {
    const policy = select("Policy", { bounded_borrow: "Bounded borrowing", strict_fair: "Strictly fair" }, (value) =>
      this.#simulation.change({ set: "policy", policy: policyChoice(value as "strict_fair") }),
    );
    this.#fillers.push(({ policy: now }, put) => put(policy.control, now === "strict_fair" ? "strict_fair" : "bounded_borrow"));
    const weights = layout.groups.length > MOST_GROUPS ? this.#findWeights(layout) : this.#weights(layout, [...layout.groups.keys()]);
    return make("fieldset", {}, make("legend", {}, "Fairness between columns"), policy.element, ...weights);
  }

  /**
   * The weights of these groups.
   * @param groups by index
   */
  #weights(layout: Layout, groups: number[]) {
    const fields = groups.map((group) => this.#weightField(layout, group));
    this.#weightFields = fields;
    return fields.map(({ element }) => element);
  }

  #weightField(layout: Layout, group: number): WeightField {
    const name = layout.groups[group]?.name ?? "";
    const column = layout.columns.find((one) => one.group === group)?.name ?? "";
    const { control, element } = number(`Weight of ${name}`, { min: 1, max: 1000, step: 1 }, (value) => this.#simulation.change({ set: "weight", column, weight: value }));
    control.dataset.group = name;
    return { element, fill: (put) => put(control, String(this.#weight(column, group))) };
  }

  /** Of very many groups, the weights of those that are looked for by name. */
  #findWeights(layout: Layout) {
    const names = layout.groups.map(({ name }) => name.toLowerCase());
    const search = make("input", { type: "text", "aria-label": "Groups to show", placeholder: "a part of their name", autocomplete: "off", spellcheck: "false" });
    // The controls are made anew for each run: who tunes one of many groups looks for it once.
    search.value = this.#groupsToShow;
    const state = make("p", { class: "dashboard-foot", role: "status" });
    const show = () => {
      this.#groupsToShow = search.value;
      const found = groupsCalled(names, search.value.trim().toLowerCase());
      for (const { element } of this.#weightFields) element.remove();
      const elements = this.#weights(layout, found.slice(0, MOST_GROUPS));
      for (const { fill } of this.#weightFields) fill(putAnyway);
      state.before(...elements);
      say(state, inWords(found.length, names.length));
      return elements;
    };
    search.addEventListener("input", show);
    const field = make("label", { class: "field whole" }, make("span", {}, "Groups to show"), search);
    return [field, ...show(), state];
  }

  /** The weight of a group: as the last change says, else as the newest frame does. */
  #weight(column: string, group: number) {
    const { changes, at, frame, runs, layouts } = this.#simulation;
    const columns = layouts[0]?.columns.filter((one) => one.group === group).map(({ name }) => name) ?? [column];
    const set = (changes[0] ?? []).filter((one) => one.at_ms <= at && one.set === "weight" && columns.includes(one.column)).at(-1);
    if (set?.set === "weight") return set.weight;
    const { groups, only } = frame?.sides[0]?.sample ?? {};
    return groups?.[only ? only.groups.indexOf(group) : group]?.weight ?? runs[0]?.columns.find(({ name }) => name === column)?.weight ?? 1;
  }

  #provider(name: string) {
    const change = (what: import("../pkg/tidegate_playground.js").Intervention) => this.#simulation.change(what);
    const current = () => this.#now().models.get(name) as ModelSettings;
    const fixed = number("Fixed at", { min: 1, max: 100_000, step: 1 }, (value) => change({ set: "algorithm", model: name, algorithm: limitChoice("fixed", value) }));
    const algorithm = select("Limit", { tide: "Tide", aimd: "AIMD", vegas: "Vegas", fixed: "Fixed" }, (value) => {
      const limit = this.#simulation.frame?.sides[0]?.sample.providers.find((one) => one.name === name)?.limit ?? current().cap;
      return change({ set: "algorithm", model: name, algorithm: limitChoice(value as "aimd", limit) });
    });
    const cap = number("Cap", { min: 1, max: 100_000, step: 1 }, (value) => change({ set: "max_parallel", model: name, calls: value }));
    const settings = AIMD.map((one) => {
      const made = number(one.label, one, (value) =>
        this.#simulation.change(() => ({ set: "request", model: name, request: { ...current().request, [one.field]: value * one.unit } })),
      );
      made.control.dataset.field = one.field;
      return { ...made, one };
    });
    this.#fillers.push(({ models }, put) => {
      const model = models.get(name);
      if (!model) return;
      put(algorithm.control, model.algorithm.name);
      fixed.element.hidden = model.algorithm.name !== "fixed";
      if (model.algorithm.name === "fixed") put(fixed.control, String(model.algorithm.limit));
      put(cap.control, String(model.cap));
      for (const { control, element, one } of settings) {
        element.hidden = model.algorithm.name !== "aimd" && !FOR_ANY.has(one.field);
        put(control, String((model.request[one.field] ?? one.usual) / one.unit));
      }
    });
    const controls = [algorithm, fixed, cap, ...settings].map(({ element }) => element);
    const fieldset = make("fieldset", { "data-provider": name }, make("legend", {}, `Limit of ${name}`), ...controls);
    return fieldset;
  }

  #now() {
    const { runs, changes, at } = this.#simulation;
    return settingsAt(runs[0] as import("../pkg/tidegate_playground.js").Scenario, changes[0] ?? [], at);
  }
}

/**
 * The groups with these words in their names, by index: first those that are called exactly so, which others may hide.
 */
function groupsCalled(names: string[], search: string) {
  const words = search.split(/\s+/);
  const found = [...names.keys()].filter((group) => words.every((word) => names[group]?.includes(word)));
  return [...found.filter((group) => names[group] === search), ...found.filter((group) => names[group] !== search)];
}

function inWords(found: number, all: number) {
  if (found <= MOST_GROUPS) return found === 0 ? "No group is called so." : `Groups called so: ${found}.`;
  return `${MOST_GROUPS} of ${count(found)} groups${found < all ? " called so" : ""} are shown.`;
}

function putAnyway(control: HTMLInputElement | HTMLSelectElement, value: string) {
  if (control.value !== value) control.value = value;
}

/** Leaves a control alone while a person is at it. */
function putUnlessInUse(control: HTMLInputElement | HTMLSelectElement, value: string) {
  if (document.activeElement !== control || control instanceof HTMLSelectElement) putAnyway(control, value);
}

function select(label: string, options: Record<string, string>, change: (value: string) => void) {
  const control = make("select", { "aria-label": label }, ...Object.entries(options).map(([value, text]) => new Option(text, value)));
  control.addEventListener("change", () => change(control.value));
  return { control, element: make("label", { class: "field" }, make("span", {}, label), control) };
}

function number(label: string, { min, max, step }: { min: number, max: number, step: number }, change: (value: number) => void) {
  const control = make("input", { "aria-label": label, type: "number", inputmode: "decimal", min: String(min), max: String(max), step: String(step), required: "" });
  control.addEventListener("change", () => control.reportValidity() && change(control.valueAsNumber));
  return { control, element: make("label", { class: "field" }, make("span", {}, label), control) };
}
