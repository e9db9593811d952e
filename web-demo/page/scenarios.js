// @ts-check
// The scenarios that come with the page. The list and the first one, with which it begins, are there from the start; the
// others are loaded when one of them is first asked for.
import { fetched } from "./fetching.js";
import { FIRST, SCENARIOS, scenarioOf } from "./pkg/tidegate_scenarios.js";

/** @typedef {import("./pkg/tidegate_playground.js").Scenario} Scenario */

export { SCENARIOS };

/** A scenario by its name, without the fields that have their defaults. Rejects for an unknown one.
 * @param {string} name @returns {Promise<Scenario>} */
export async function find(name) {
  // Not in the core's words, which list all there are: a link may hold any name.
  if (!SCENARIOS.some((one) => one.name === name)) throw new Error(`No scenario is called "${name.slice(0, 40)}".`);
  if (name === SCENARIOS[0]?.name) return /** @type {Scenario} */ (scenarioOf(name, FIRST));
  const { textOf } = /** @type {typeof import("./pkg/tidegate_scenario_texts.js")} */ (await fetched("The scenario", "pkg/tidegate_scenario_texts.js"));
  return /** @type {Scenario} */ (scenarioOf(name, textOf(name)));
}
