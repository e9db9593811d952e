/**
 * Request admission and pipelines for real calls: all of `tidegate`, and rows that are filled through a gate.
 *
 * @packageDocumentation
 */

export * from "./index.js";
export * from "./pipeline.js";
