/**
 * Registers one listener per signal, however many calls share it. Removing a listener from a signal searches
 * the signal's whole listener list.
 */

/** The callbacks for the abort of one signal. */
class Listeners {
  readonly #all = new Set<() => void>();
  readonly #signal: AbortSignal;
  readonly #onAbort = (): void => {
    const those = [...this.#all];
    this.#all.clear();
    for (const listener of those) listener();
  };

  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  add(listener: () => void): void {
    if (this.#all.size === 0) this.#signal.addEventListener("abort", this.#onAbort, { once: true });
    this.#all.add(listener);
  }

  remove(listener: () => void): void {
    if (this.#all.delete(listener) && this.#all.size === 0) this.#signal.removeEventListener("abort", this.#onAbort);
  }
}

const bySignal = new WeakMap<AbortSignal, Listeners>();

/**
 * Calls `listener` once when `signal` is aborted, unless it is removed before. The listener must not throw.
 */
export function onAbort(signal: AbortSignal, listener: () => void): void {
  let listeners = bySignal.get(signal);
  if (listeners === undefined) bySignal.set(signal, (listeners = new Listeners(signal)));
  listeners.add(listener);
}

/** Removes a listener. */
export function offAbort(signal: AbortSignal, listener: () => void): void {
  bySignal.get(signal)?.remove(listener);
}
