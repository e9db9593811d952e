// The axes of the charts, and what a full bar of a queue stands for. Two dashboards beside each other share
// theirs, so that runs can be compared by eye: the same height is as many calls, the same place the same
// instant, and the same length as many tasks.

/** A run shorter than this is shown on an axis this long, in ms. */
const SHORTEST = 10_000;
/** A value axis is never lower than this. */
const LOWEST = 4;

/** The least of 1, 2, 5, 10, 20... that is not below `value`. */
function roundUp(value: number) {
  let top = 1;
  for (let turn = 0; top < value; turn += 1) top *= turn % 3 === 1 ? 2.5 : 2;
  return top;
}

export class Axes {
  /** Whether only the latest stretch is shown. */
  #follows = false;
  /** The top of the value axis of each provider, by index. */
  #tops: number[] = [];
  /** Up to where each run has come, in ms. */
  #ends: Map<unknown, number> = new Map();
  #turned: (() => void)[] = [];
  /**
   * What a full bar of a queue stands for: workers, and tasks. They only grow, so that the bars stay
   * comparable.
   */
  slots = 4;
  tasks = 10;

  get follows() {
    return this.#follows;
  }

  /** Shows the latest stretch, or the whole run, everywhere. */
  turn(follows: boolean) {
    this.#follows = follows;
    for (const listener of this.#turned) listener();
  }

  /** Hears when the stretch that is shown is another one. */
  onTurn(listener: () => void) {
    this.#turned.push(listener);
  }

  /** The top of a provider's value axis. */
  top(provider: number) {
    return this.#tops[provider] ?? LOWEST;
  }

  /** Makes room for a value. An axis only grows during a run, so that the picture stays put. */
  grow(provider: number, value: number) {
    if (value > 0.94 * this.top(provider)) this.#tops[provider] = Math.ceil(value * 1.25);
  }

  /** Makes room for so many workers and waiting tasks of one group. */
  growBars(slots: number, tasks: number) {
    this.slots = Math.max(this.slots, slots);
    if (tasks > this.tasks) this.tasks = roundUp(tasks);
  }

  /**
   * A run has come to this instant.
   * @param run whatever stands for it
   */
  reach(run: unknown, ms: number) {
    this.#ends.set(run, ms);
  }

  /**
   * The stretch of time to show, in ms.
   * @param windowMs how long it is if only the latest is shown
   */
  stretch(windowMs: number) {
    const end = Math.max(this.#follows ? windowMs : SHORTEST, ...this.#ends.values());
    return { from: this.#follows ? end - windowMs : 0, end };
  }
}
