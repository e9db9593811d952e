/**
 * Request admission and pipelines for real calls.
 *
 * @packageDocumentation
 */

export { Permit, RequestGate, Resource } from "./wasm/tidegate_live.js";
export * from "./pipeline.js";
