/// <reference lib="esnext.disposable" preserve="true" />
/**
 * Runs in virtual time: the scheduler itself against mock providers, without waiting. Equal scenarios and
 * seeds give equal runs on every machine, decision for decision.
 *
 * ```ts
 * import { simulate } from "tidegate/sim";
 *
 * const { run, providers } = simulate("falling-tide", 1);
 * console.log(run.rows_out, providers[0]?.refused);
 * ```
 *
 * `replayDecisions` runs the log of a real run again, which `tidegate run --record` wrote: new machines get
 * every command, and must decide the same.
 *
 * ```ts
 * import { replayDecisions } from "tidegate/sim";
 *
 * try {
 *   const { equal } = replayDecisions("what `tidegate run --record` wrote");
 *   console.log(equal);
 * } catch (error) {
 *   console.log(error instanceof Error); // true
 * }
 * ```
 *
 * @packageDocumentation
 */

import { resolveScenario } from "./scenarios.js";
import { Simulation as Run, simulate as run, type Report, type Scenario } from "./wasm/tidegate_sim.js";

/**
 * Runs a scenario to its end, and says what it came to. Equal scenarios and seeds give equal reports on every
 * machine.
 *
 * It works until it is done, without a break: `Simulation` leaves the event loop free in between. Throws for
 * an unknown name, and for a scenario that cannot run, with what is wrong with it.
 *
 * @param scenario the name of a built-in scenario, or one of your own
 * @param seed a whole number from 0 to 2^53 - 1; 1, if it is left out
 */
export function simulate(scenario: string | Scenario, seed?: number | null): Report {
  return run(resolveScenario(scenario), seed);
}

/** One run of a scenario, in as many parts as you like. */
export class Simulation extends Run {
  /**
   * Starts a run. Throws as `simulate()` does.
   *
   * @param scenario the name of a built-in scenario, or one of your own
   * @param seed a whole number from 0 to 2^53 - 1; 1, if it is left out
   */
  constructor(scenario: string | Scenario, seed?: number | null) {
    super(resolveScenario(scenario), seed);
  }
}

export { replayDecisions } from "./wasm/tidegate_sim.js";
export { scenario, scenarios } from "./scenarios.js";
export type { ScenarioInfo } from "./wasm/tidegate_scenarios.js";
export type {
  About,
  AdaptiveRowGroups,
  AimdConfig,
  Answering,
  BoundedBorrowConfig,
  Capacity,
  Change,
  ColumnSample,
  Distribution,
  DropReason,
  FailureKind,
  Faults,
  GroupKind,
  GroupSample,
  Holder,
  IdleCause,
  IdleFigures,
  Intervention,
  Latency,
  LimitChoice,
  Millis,
  Model,
  Nanos,
  Outage,
  Overload,
  PolicyChoice,
  PreBatch,
  ProviderSample,
  ProviderSpec,
  Rate,
  ReplayedDecisions,
  Report,
  ResourceFigures,
  RetryKind,
  RowGroupBlock,
  RowGroupsSample,
  RunFigures,
  RunReport,
  RunSoFar,
  Sample,
  Scenario,
  ScenarioColumn,
  SlotSample,
  StopReason,
  Strategy,
  TaskCounts,
  Why,
} from "./wasm/tidegate_sim.js";
