// Puts the comparison into the page: two runs on one seed, what differs between them, and what comes of it.
import { mount } from "svelte";
import { byId } from "../dom.ts";
import Outcome from "./Outcome.svelte";
import Sides from "./Sides.svelte";
import type { Simulation } from "../simulation.ts";

export function openCompare(simulation: Simulation) {
  const target = byId("compare");
  mount(Sides, { target, anchor: target.firstElementChild as Element, props: { simulation } });
  // Among the panels of the two runs: it stands below their charts.
  mount(Outcome, { target: target.querySelector(".halves") as Element, props: { simulation } });
}
