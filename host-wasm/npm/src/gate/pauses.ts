/** Calls that wait for their next retry. They are outside the queue: they hold no slot and request none. */

import { DeniedError, type DenialReason } from "../errors.js";
import { offAbort, onAbort } from "./aborts.js";
import type { Resource } from "./keys.js";
import { LONGEST_DELAY_MS } from "./own_signal.js";

interface Pause {
  readonly resource: Resource;
  readonly end: (error: unknown) => void;
}

/** The retry pauses of one gate. */
export class Pauses {
  readonly #all = new Set<Pause>();
  readonly #changed: () => void;

  /** `changed` is called after each end of a pause. */
  constructor(changed: () => void) {
    this.#changed = changed;
  }

  /** Returns how many calls of a resource, or of all resources, wait. */
  count(resource?: Resource): number {
    if (resource === undefined) return this.#all.size;
    let count = 0;
    for (const pause of this.#all) count += Number(pause.resource === resource);
    return count;
  }

  /** Calls `goOn` after `ms` milliseconds, or before that `stop` with the reason of `signal` or a denial. */
  begin(resource: Resource, ms: number, signal: AbortSignal | undefined, goOn: () => void, stop: (error: unknown) => void): void {
    if (signal?.aborted) return stop(signal.reason);
    const abort = (): void => pause.end(signal?.reason);
    const clear = (): void => {
      clearTimeout(timer);
      if (signal !== undefined) offAbort(signal, abort);
      this.#all.delete(pause);
    };
    const pause: Pause = {
      resource,
      end: (error) => {
        clear();
        stop(error);
        this.#changed();
      },
    };
    const timer = setTimeout(() => {
      clear();
      goOn();
      this.#changed();
    }, Math.min(Math.ceil(ms), LONGEST_DELAY_MS));
    this.#all.add(pause);
    if (signal !== undefined) onAbort(signal, abort);
  }

  /** Ends the pauses of a resource, or all, with a denial. Returns how many. */
  deny(reason: DenialReason, resource?: Resource): number {
    const those = [...this.#all].filter((pause) => resource === undefined || pause.resource === resource);
    for (const pause of those) pause.end(new DeniedError(pause.resource.name, reason));
    return those.length;
  }
}
