/** Calls that are made again. */

import { DeniedError, whole } from "../errors.js";
import type { CallResult, Ending } from "./call.js";
import type { Resource } from "./keys.js";
import type { GateModule } from "./tickets.js";
import { SUCCESS } from "../outcome.js";
import { isResponse, letGo } from "../response.js";

/** @internal How a try of a call that may be made again ended, and what it brought. */
export interface Ended<T> {
  readonly result: CallResult<T>;
  readonly ending: Ending;
}

/** @internal The core's backoff of one call, made when it first fails. */
export class Retries {
  readonly #resource: Resource;
  readonly #retries: number;
  #backoff: InstanceType<GateModule["CallRetries"]> | undefined;

  constructor(resource: Resource, retries: number) {
    this.#resource = resource;
    this.#retries = retries;
  }

  /** In how many milliseconds a call that ended so is made again; NaN if its end is final. */
  after({ outcome, retryAfterMs }: Ending): number {
    if (outcome === SUCCESS) return NaN;
    this.#backoff ??= new this.#resource.tickets.module.CallRetries(this.#retries);
    return this.#backoff.afterCall(outcome, retryAfterMs);
  }
}

/** @internal The backoff of a call with this setting; undefined for one that is made once. */
export function retriesOf(resource: Resource, retries: number | undefined): Retries | undefined {
  const number = whole("retries", retries ?? 0);
  return number === 0 ? undefined : new Retries(resource, number);
}

/** @internal Whether a call that was to be made again is not: its failure was its own. */
export function failureStands(error: unknown): boolean {
  return error instanceof DeniedError && error.reason === "request_at_fault";
}

/** Lets go of an answer that nobody will see. */
export function abandon({ result }: Ended<unknown>): void {
  if ("value" in result && isResponse(result.value)) void letGo(result.value);
}
