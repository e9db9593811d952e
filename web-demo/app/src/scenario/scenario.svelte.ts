// Puts the picker and the form of the scenario into the page.
import { mount } from "svelte";
import { byId } from "../dom.ts";
import Picker from "./Picker.svelte";
import ScenarioForm from "./ScenarioForm.svelte";
import type { ScenarioInfo } from "../pkg/tidegate_scenarios.js";
import type { Simulation } from "../simulation.ts";

/** Returns the properties of the picker: the page sets what is offered and what is chosen. */
export function openPicker(onpick: (name: string) => void) {
  const props = $state({ scenarios: [] as readonly ScenarioInfo[], chosen: undefined as string | undefined, title: "", onpick });
  mount(Picker, { target: byId("picker"), props });
  return props;
}

/** Returns the properties of the form: it follows the run while `shown` is set. */
export function openScenario(simulation: Simulation) {
  const props = $state({ simulation, shown: false });
  mount(ScenarioForm, { target: byId("scenario"), props });
  return props;
}
