/// <reference lib="esnext.disposable" preserve="true" />
/**
 * Runs the scheduler in virtual time against mock providers. Equal scenarios and seeds give equal runs on
 * every machine, decision for decision.
 *
 * ```ts
 * import { simulate } from "tidegate/sim";
 *
 * const { run, providers } = simulate("falling-capacity", 1);
 * console.log(run.rows_out, providers[0]?.refused);
 * ```
 *
 * `replayDecisions` replays the decision log of a real run, written by `tidegate run --record`: a new
 * scheduler receives every recorded command and must make the same decisions.
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
 * Runs a scenario to its end and returns its report. Equal scenarios and seeds give equal reports on every
 * machine.
 *
 * It blocks until the run is over; `Simulation` leaves the event loop free between parts. Throws for an
 * unknown name and for an invalid scenario, with the path of the error.
 *
 * @param scenario the name of a built-in scenario, or one of your own
 * @param seed a whole number from 0 to 2^53 - 1; 1, if it is left out
 */
export function simulate(scenario: string | Scenario, seed?: number | null): Report {
  return run(resolveScenario(scenario), seed);
}

/** A run of a scenario in parts of any size. */
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
  LimitConfig,
  Answering,
  BorrowCeiling,
  BoundedBorrowConfig,
  Capacity,
  CauseShare,
  Change,
  Closure,
  ColumnId,
  ColumnReport,
  ColumnSample,
  CooldownRule,
  CutRule,
  Distribution,
  DropReason,
  DroppedCount,
  FailureKind,
  Faults,
  GroupKind,
  GroupSample,
  Holder,
  Hook,
  IdleCause,
  IdleFigures,
  Intervention,
  Latency,
  LimitChoice,
  Maxima,
  Millis,
  Model,
  Nanos,
  Neighbour,
  Outage,
  Overload,
  PolicyChoice,
  PreBatch,
  ProviderAnswers,
  ProviderSample,
  ProviderSpec,
  RampState,
  Rate,
  Rejection,
  ReplayedDecisions,
  Report,
  ResourceFigures,
  RetryAfter,
  RetryAfterStops,
  RetryKind,
  RetryableCount,
  RowGroupBlock,
  RowGroupsSample,
  RowRange,
  RunFigures,
  RunReport,
  RunSoFar,
  Sample,
  Scenario,
  ScenarioColumn,
  ShareRounding,
  SlotSample,
  Step,
  StopKind,
  StopReason,
  Strategy,
  Surge,
  Tail,
  TaskCounts,
  Why,
} from "./wasm/tidegate_sim.js";
