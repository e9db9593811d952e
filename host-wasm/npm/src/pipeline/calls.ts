import { type AcquireOptions, beforeAsking, type RequestGate, type RunOptions, throughOutages } from "../gate.js";
import type { Call } from "../gate-call.js";
import type { Key } from "../gate-keys.js";
import type { Permit } from "../gate-permit.js";
import type { PipelineDraft } from "../wasm/tidegate_pipeline.js";
import { signalOf } from "../response.js";
import { answerOf } from "./outcomes.js";

/** How a task asks for a permit. */
export interface TaskCallOptions extends Omit<AcquireOptions, "signal"> {
  /** What to call, if it is not what the column `calls`. */
  readonly key?: Key;
}

/** How a task makes a call. */
export interface TaskRunOptions<T> extends TaskCallOptions, Pick<RunOptions<T>, "callTimeoutMs" | "classify"> {}

/** The latest column of the draft calls `key`. Throws for one that the gate does not know. */
export function declareCalls(draft: PipelineDraft, gate: RequestGate, key: Key): void {
  const number = gate.numberOf(key);
  const resource = gate.resources().find((known) => known.number === number);
  draft.calls(number, resource?.name ?? "");
}

/** Who asks, and for whom: the task's tie is lent to the gate right before it asks. */
export interface Asking {
  readonly gate: RequestGate;
  readonly key: Key;
  readonly signal: AbortSignal;
  readonly lend: () => void;
}

function onBehalf<Options extends object>({ signal, lend }: Asking, options: Options): Options & { readonly signal: AbortSignal } {
  if ("signal" in options) throw new TypeError("a task's call has no setting `signal`: it has that of its task");
  return { ...options, signal, [beforeAsking]: lend };
}

export function acquireFor(asking: Asking, options: TaskCallOptions): Promise<Permit> {
  const { key: _, ...rest } = options;
  return asking.gate.acquire(asking.key, onBehalf(asking, rest));
}

export function runFor<T>(asking: Asking, call: (call: Call) => T | PromiseLike<T>, options: TaskRunOptions<T>): Promise<T> {
  const { key: _, classify, ...rest } = options;
  const read: RunOptions<T>["classify"] = (result) => {
    const said = classify?.(result);
    if (said !== undefined || !("error" in result)) return said;
    const head = answerOf(result.error)?.head;
    return head && { outcome: head.outcome, retryAfterMs: head.retryAfterMs };
  };
  return asking.gate.run(asking.key, call, onBehalf(asking, { ...rest, classify: read, [throughOutages]: true }));
}

export function fetchFor(
  asking: Asking,
  input: RequestInfo | URL,
  init: RequestInit,
  options: TaskRunOptions<Response>,
): Promise<Response> {
  const { key: _, ...rest } = options;
  const { signal, ...asked } = onBehalf(asking, { ...rest, [throughOutages]: true });
  const given = signalOf(input, init);
  return asking.gate.fetch(asking.key, input, { ...init, signal: given ? AbortSignal.any([signal, given]) : signal }, asked);
}
