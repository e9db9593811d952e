// The built-in scenarios: data of the package, passed to the wasm module as objects.

import { textOf } from "./wasm/tidegate_scenario_texts.js";
import { SCENARIOS, type ScenarioInfo } from "./wasm/tidegate_scenarios.js";
import { completeScenario, type Scenario } from "./wasm/tidegate_sim.js";

/** Returns the scenarios of all suites, in the order in which to list them. */
export function scenarios(): ScenarioInfo[] {
  return SCENARIOS.map((info) => ({ ...info }));
}

/** Returns a new copy of a scenario by its name, with every field set. Throws for an unknown name. */
export function scenario(name: string): Scenario {
  return completeScenario(byName(name));
}

/** @internal Returns the scenario that a caller names or passes. */
export function resolveScenario(one: string | Scenario): Scenario {
  return typeof one === "string" ? byName(one) : one;
}

/** Returns a scenario by its name, without fields at their defaults. Throws an error that lists the names. */
function byName(name: string): Scenario {
  const listed = SCENARIOS.find((one) => one.name === name);
  const text = textOf(name);
  if (listed === undefined || text === undefined) {
    throw new Error(`no scenario is called \`${name}\`; there are ${SCENARIOS.map((one) => one.name).join(", ")}`);
  }
  const { suite, ...info } = listed;
  return { ...info, ...(JSON.parse(text) as Omit<Scenario, keyof typeof info>) };
}
