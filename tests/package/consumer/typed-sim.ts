// Compiled and not run: the types of the simulation and of replays.

import { replayDecisions, scenario, scenarios, simulate, Simulation, type Report, type Scenario } from "tidegate/sim";

const plan: Scenario = scenario("falling-tide");
const report: Report = simulate(plan, 7);
console.log(report.run.rows_out, scenarios().map(({ name }) => name.length));
// @ts-expect-error there is no such figure
console.log(report.run.rows_left_out_of_it);

const simulation = new Simulation(plan, 1);
while (!simulation.advanceTo(1_000, 10_000));
simulation.free();
console.log(replayDecisions("").toString());
