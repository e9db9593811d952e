/**
 * Decision logs, told again: new machines are told every command of a recorded run, and must decide the same.
 *
 * ```ts
 * import { readFile } from "node:fs/promises";
 * import { replayDecisions } from "tidegate/replay";
 *
 * const { equal } = replayDecisions(await readFile("run.jsonl", "utf8"));
 * ```
 *
 * @packageDocumentation
 */

export { replayDecisions } from "./wasm/tidegate_replay.js";
export type { ReplayedDecisions } from "./wasm/tidegate_replay.js";
