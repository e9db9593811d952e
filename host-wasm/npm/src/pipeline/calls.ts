import { type Permit, type PipelineDraft, type RequestGate, type Resource } from "../wasm/tidegate_live.js";

/** What a column's tasks call. */
export type CallKey = Resource;

/** How long a call may wait, and for whom. */
export interface CallOptions {
  /** What to call, if it is not what the column `calls`. */
  readonly key?: CallKey;
  /** The longest wait for the permit, in milliseconds. Default: the gate's. */
  readonly timeoutMs?: number;
}

/** The latest column of the draft calls `key`. */
export function declareCalls(draft: PipelineDraft, gate: RequestGate, key: CallKey, name: string): void {
  draft.calls(gate, key, name);
}

/** Asks in this very turn; gives the permit back if nobody wants it any more. */
export async function acquirePermit(gate: RequestGate, key: CallKey, options: CallOptions, signal: AbortSignal): Promise<Permit> {
  const permit = await gate.acquire(key, options.timeoutMs);
  if (signal.aborted) {
    permit.free();
    throw signal.reason;
  }
  return permit;
}
