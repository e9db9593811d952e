// Puts the form of the scenario into the page.
import { mount } from "svelte";
import { byId } from "../dom.ts";
import ScenarioForm from "./ScenarioForm.svelte";
import type { Simulation } from "../simulation.ts";

/** Returns the properties of the form: it follows the run while `shown` is set. */
export function openScenario(simulation: Simulation) {
  const props = $state({ simulation, shown: false });
  mount(ScenarioForm, { target: byId("scenario"), props });
  return props;
}
