/**
 * Decision logs, told again: new machines are told every command of a recorded run, and must decide the same.
 *
 * ```ts
 * import { replayDecisions } from "tidegate/replay";
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

export { replayDecisions } from "./wasm/tidegate_replay.js";
export type { ReplayedDecisions } from "./wasm/tidegate_replay.js";
