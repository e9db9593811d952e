// The scenarios that have names: data of the package, handed to the wasm as objects.

import { textOf } from "./wasm/tidegate_scenario_texts.js";
import { SCENARIOS, scenarioOf, type ScenarioInfo } from "./wasm/tidegate_scenarios.js";
import { completeScenario, type Scenario } from "./wasm/tidegate_sim.js";

/** The scenarios of all suites, in the order in which they should be offered. */
export function scenarios(): ScenarioInfo[] {
  return SCENARIOS.map((info) => ({ ...info }));
}

/**
 * A scenario by its name, with every field, anew each time: it can be changed at will. Throws for an unknown
 * one.
 */
export function scenario(name: string): Scenario {
  return completeScenario(byName(name));
}

/** The scenario that a caller means. @internal */
export function resolveScenario(one: string | Scenario): Scenario {
  return typeof one === "string" ? byName(one) : one;
}

/** A scenario by its name, without the fields that have their defaults. */
function byName(name: string): Scenario {
  return scenarioOf(name, textOf(name)) as Scenario;
}
