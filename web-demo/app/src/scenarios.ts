// The scenarios that come with the page. The list and the first one, with which it begins, are there from the
// start; the others are loaded when one of them is first asked for.
import { fetched } from "./fetching.ts";
import { FIRST, SCENARIOS } from "./pkg/tidegate_scenarios.js";
import type { ScenarioInfo } from "./pkg/tidegate_scenarios.js";

/** A scenario as it came: reading the text of a large one takes long, and is left to the worker. */
export interface Packed {
  info: Omit<ScenarioInfo, "suite">;
  /** The rest, as JSON without the fields that have their defaults. */
  text: string;
}

export { SCENARIOS };

/** A scenario by its name. Rejects for an unknown one. */
export async function find(name: string): Promise<Packed> {
  const listed = SCENARIOS.find((one) => one.name === name);
  const text = listed && (listed === SCENARIOS[0] ? FIRST : (await texts()).textOf(name));
  // Not in the core's words, which list all there are: a link may hold any name.
  if (!text) throw new Error(`No scenario is called "${name.slice(0, 40)}".`);
  const { suite: _, ...info } = listed;
  return { info, text };
}

const texts = () => fetched("The scenario", () => import("./pkg/tidegate_scenario_texts.js"));
