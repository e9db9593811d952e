// Puts what can be taken away into the page.
import { mount } from "svelte";
import { byId } from "../dom.ts";
import Share from "./Share.svelte";
import type { Simulation } from "../simulation.ts";
import type { View } from "../tabs.ts";

/**
 * Returns the properties of the view: it follows the run while `shown` is set, and its link leads to `view`.
 */
export function openShare(simulation: Simulation) {
  const props = $state<{ simulation: Simulation; view: View; shown: boolean }>({ simulation, view: "explore", shown: false });
  mount(Share, { target: byId("share"), props });
  return props;
}
