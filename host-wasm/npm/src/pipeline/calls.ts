import type { RequestGate } from "../gate/gate.js";
import type { TaskBinding, Call, Ending } from "../gate/call.js";
import type { Key } from "../gate/keys.js";
import { type AcquireOptions, taskBinding, type RunOptions } from "../gate/options.js";
import type { Permit } from "../gate/permit.js";
import { SUCCESS } from "../outcome.js";
import type { CallTarget } from "../wasm/tidegate.js";
import { isResponse, cancelBody, signalOf } from "../response.js";
import { meaningOf, noteEnding } from "./outcomes.js";
import type { FetchInit, FetchInput, FetchResponse, Signal } from "../platform.js";

/** How a task asks for a permit. */
export interface TaskCallOptions extends Omit<AcquireOptions, "signal"> {
  /** What to call, if it is not what the column `calls`. */
  readonly key?: Key;
}

/** How a task makes a call. */
export interface TaskRunOptions<T> extends TaskCallOptions, Pick<RunOptions<T>, "callTimeoutMs" | "classify"> {}

/** What a column calls. Throws for a key that the gate does not know. */
export function callTarget(gate: RequestGate, key: Key): CallTarget {
  const number = gate.numberOf(key);
  const resource = gate.resources().find((known) => known.number === number);
  return { resource: number, name: resource?.name ?? "" };
}

/** Who asks, and for whom: the task's tie is lent to the gate right before it asks. */
export interface TaskCaller {
  readonly gate: RequestGate;
  readonly key: Key;
  readonly signal: Signal;
  readonly lendYieldToken: () => void;
}

function asTask<Options extends object>(
  { signal, lendYieldToken }: TaskCaller,
  options: Options,
  ended?: TaskBinding["ended"],
): Options & { readonly signal: Signal } {
  if ("signal" in options) throw new TypeError("a task's call has no setting `signal`: it has that of its task");
  const binding: TaskBinding = { lendYieldToken, ended };
  return { ...options, signal, [taskBinding]: binding };
}

/**
 * The answer of a call that succeeded. What any other means is thrown, and the body of its answer let go of:
 * it would keep its connection.
 */
async function accepted<T>(call: (ended: NonNullable<TaskBinding["ended"]>) => Promise<T>): Promise<T> {
  let ending: Ending | undefined;
  const answer = await call((ended, error) => {
    ending = ended;
    noteEnding(error, ended);
  });
  if (ending === undefined || ending.outcome === SUCCESS) return answer;
  const meaning = meaningOf(ending, isResponse(answer) ? answer.status : 0);
  if (meaning === undefined) return answer;
  if (isResponse(answer)) void cancelBody(answer);
  throw meaning;
}

export function acquireFor(caller: TaskCaller, options: TaskCallOptions): Promise<Permit> {
  const { key: _, ...rest } = options;
  return caller.gate.acquire(caller.key, asTask(caller, rest));
}

export function runFor<T>(caller: TaskCaller, call: (call: Call) => T | PromiseLike<T>, options: TaskRunOptions<T>): Promise<T> {
  const { key: _, ...rest } = options;
  return accepted((ended) => caller.gate.run(caller.key, call, asTask(caller, rest, ended)));
}

export function fetchFor(
  caller: TaskCaller,
  input: FetchInput,
  init: FetchInit,
  options: TaskRunOptions<FetchResponse>,
): Promise<FetchResponse> {
  const { key: _, ...rest } = options;
  return accepted((ended) => {
    const { signal, ...asked } = asTask(caller, rest, ended);
    const given = signalOf(input, init);
    return caller.gate.fetch(caller.key, input, { ...init, signal: given ? AbortSignal.any([signal, given]) : signal }, asked);
  });
}
