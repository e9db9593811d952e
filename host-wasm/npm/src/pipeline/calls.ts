import type { PipelineDraft } from "../wasm/tidegate_live.js";

/** What a column's tasks call. */
export type CallKey = string;

/** A permit for one call. */
export interface Permit {
  finish(outcome: string, retryAfterMs?: number): void;
  free(): void;
}

/** How long a call may wait, and for whom. */
export interface CallOptions {
  /** What to call, if it is not what the column `calls`. */
  readonly key?: CallKey;
  /** The longest wait for the permit, in milliseconds. Default: the gate's. */
  readonly timeoutMs?: number;
}

export interface RequestGate {
  acquire(key: CallKey, options: { timeoutMs?: number; signal?: AbortSignal }): Promise<Permit>;
}

/** The latest column of the draft calls `key`. */
export function declareCalls(_draft: PipelineDraft, _gate: RequestGate, _key: CallKey): void {}
export function declareGate(_draft: PipelineDraft, _gate: RequestGate): void {}

/** Asks in this very turn; gives the permit back if nobody wants it any more. */
export async function acquirePermit(gate: RequestGate, key: CallKey, options: CallOptions, signal: AbortSignal): Promise<Permit> {
  return gate.acquire(key, { ...options, signal });
}
