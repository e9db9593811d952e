/**
 * Runs in virtual time: the scheduler itself against mock providers, without waiting. Equal scenarios and seeds give
 * equal runs on every machine, decision for decision.
 *
 * ```ts
 * import { simulate } from "tidegate/sim";
 *
 * const { run, providers } = simulate("falling-tide", 1);
 * console.log(run.rows_out, providers[0]?.refused);
 * ```
 *
 * @packageDocumentation
 */

export { Simulation, scenario, scenarios, simulate } from "./wasm/tidegate_sim.js";
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
  ScenarioInfo,
  SlotSample,
  StopReason,
  Strategy,
  TaskCounts,
  Why,
} from "./wasm/tidegate_sim.js";
