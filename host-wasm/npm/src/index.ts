/**
 * Request admission and pipelines for real calls.
 *
 * @packageDocumentation
 */


export * from "./pipeline.js";
