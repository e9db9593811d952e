import type { RequestGate } from "../gate/gate.js";
import type { Call } from "../gate/call.js";
import type { Ending, TaskBinding } from "../gate/ending.js";
import type { Key } from "../gate/keys.js";
import { OwnSignal } from "../gate/own_signal.js";
import { taskBinding } from "../gate/options.js";
import type { Permit } from "../gate/permit.js";
import { SUCCESS } from "../outcome.js";
import type { CallTarget } from "../wasm/tidegate.js";
import { isResponse, cancelBody, signalOf } from "../response.js";
import { meaningOf, noteEnding } from "./outcomes.js";
import type { TaskCallOptions, TaskRunOptions } from "./task.js";
import type { FetchInit, FetchInput, FetchResponse, Signal } from "../platform.js";

/** Returns the resource that a column calls. Throws for an unregistered key. */
export function callTarget(gate: RequestGate, key: Key): CallTarget {
  const number = gate.numberOf(key);
  const resource = gate.resources().find((known) => known.number === number);
  return { resource: number, name: resource?.name ?? "" };
}

/** The gate, key and signal of a task's call. `passYieldToken` is called right before the permit request. */
export interface TaskCaller {
  readonly gate: RequestGate;
  readonly key: Key;
  readonly signal: Signal;
  readonly passYieldToken: () => void;
}

function asTask<Options extends object>(
  { signal, passYieldToken }: TaskCaller,
  options: Options,
  ended?: TaskBinding["ended"],
): Options & { readonly signal: Signal } {
  if ("signal" in options) throw new TypeError("a task's call has no setting `signal`: it uses the signal of its task");
  const binding: TaskBinding = { passYieldToken, ended };
  return { ...options, signal, [taskBinding]: binding };
}

/**
 * Returns the response of a successful call. For any other end it throws what the end means for the task, and
 * cancels the body of the response, which would keep its connection open.
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

export async function fetchFor(
  caller: TaskCaller,
  input: FetchInput,
  init: FetchInit,
  options: TaskRunOptions<FetchResponse>,
): Promise<FetchResponse> {
  const { key: _, ...rest } = options;
  const given = signalOf(input, init) ?? undefined;
  const both = given && joined(caller.signal, given);
  let body: FetchResponse["body"] = null;
  try {
    const answer = await accepted((ended) => {
      const { signal, ...asked } = asTask(caller, rest, ended);
      return caller.gate.fetch(caller.key, input, { ...init, signal: both?.signal ?? signal }, asked);
    });
    // The body of any other response has arrived: see `make` of `gate/fetching.ts`.
    if (answer.status >= 400) body = answer.body;
    return answer;
  } finally {
    both?.unlinkAfter(body);
  }
}

/** Returns a signal that is aborted with either. `AbortSignal.any` would listen to a shared signal once for each call. */
function joined(signal: Signal, given: Signal): OwnSignal {
  const both = new OwnSignal(signal, undefined);
  both.link(given);
  return both;
}
