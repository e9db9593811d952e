// Compiled and not run: the types of the simulation and of replays.

import { replayDecisions, scenario, scenarios, simulate, Simulation, type Model, type Report, type Scenario, type StopReason } from "tidegate/sim";

const plan: Scenario = scenario("falling-capacity");
const report: Report = simulate(plan, 7);
console.log(report.run.rows_out, scenarios().map(({ name }) => name.length));
// @ts-expect-error there is no such figure
console.log(report.run.rows_left_out_of_it);

// What has a default may be left out, and what is optional may be null.
const model: Model = { name: "writer", provider: { states_rates: true, surge: null }, max_parallel: 4 };
const shortest: Scenario = { name: "own", title: "", description: "", rows: 8, row_group_size: 4, row_groups: 1, submission_limit: 2, columns: [] };
simulate({ ...shortest, models: [model], outage_patience_ms: "never" });
// @ts-expect-error a model has a provider
simulate({ ...shortest, models: [{ name: "writer", max_parallel: 4 }] });
// @ts-expect-error there is no such setting
simulate({ ...shortest, retrys: 1 });

/** Every reason why a run ends has a case of its own. */
export function why(stop: StopReason): string {
  switch (stop.reason) {
    case "early_shutdown":
      return `${stop.failures} of ${stop.window}`;
    case "provider_unavailable":
      return stop.group.join("/");
    case "hook_failed":
      return `${stop.hook}: ${stop.why}`;
    case "checkpoint_failed":
    case "claim_failed":
    case "stuck":
      return stop.why;
    case "fatal":
    case "policy_panicked":
      return stop.cause;
    case "completed":
    case "wound_down":
    case "drained":
    case "cancelled":
      return stop.reason;
  }
}

const simulation = new Simulation(plan, 1);
while (!simulation.advanceTo(1_000, 10_000));
simulation.free();
console.log(replayDecisions("").toString());
