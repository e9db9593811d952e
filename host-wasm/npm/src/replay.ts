/**
 * Decision logs, told again.
 *
 * @packageDocumentation
 */

export * from "./wasm/tidegate_replay.js";
