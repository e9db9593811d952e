/**
 * Request admission and pipelines for real calls: gates, and rows that are filled through a gate.
 *
 * @packageDocumentation
 */

export { DeniedError, type DenialReason, FreedError, ShareError } from "./errors.js";
export {
  type CallingTask,
  type EventFacts,
  type EventHead,
  GATE_EVENT_KINDS,
  type GateEvent,
  type GateEventKind,
  type ReleaseResult,
} from "./events.js";
export { RequestGate } from "./gate/gate.js";
export type { Call, Classify } from "./gate/call.js";
export type { CallResult } from "./gate/ending.js";
export { type Key, Resource, type ResourceKey } from "./gate/keys.js";
export type {
  AdaptiveSettings,
  Algorithm,
  AlgorithmSettings,
  Budget,
  BudgetDimension,
  Fixed,
  GateOptions,
  Limits,
  RetryAfterStops,
  Tide,
  Vegas,
} from "./gate/limits.js";
export type {
  AcquireOptions,
  FetchOptions,
  LimitFunction,
  LimitOptions,
  RunOptions,
  SubscribeOptions,
} from "./gate/options.js";
export { Permit } from "./gate/permit.js";
export { type OnLoss, SharedLimit, type ShareOptions, type ShareState } from "./gate/share.js";
export type { IoRedisClient, NodeRedisClient, RedisClient, SendCommand } from "./gate/store.js";
export type { BudgetSnapshot, CallWait, Health, ResourceSnapshot, UnavailableCause, Why } from "./gate/state.js";
export * from "./pipeline/pipeline.js";
export type { Completion, Outcome, Usage } from "./outcome.js";
export type { FetchInit, FetchInput, FetchResponse, Signal } from "./platform.js";
export { type AnswerHead, type HeadReading, type RateLimitNote, readHead } from "./response.js";
