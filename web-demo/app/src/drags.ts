// Which changes of a capacity belong to one drag of its slider. Of a drag, only the last change is worth a
// mark: it leads to where the slider was let go. What tells drags apart is real time, as virtual time passes
// at any speed.
import type { Change, Intervention } from "./pkg/tidegate_playground.js";
import type { Side } from "./messages.ts";

/**
 * Movements of one slider that follow each other within so many real ms are one drag: virtual ms, for changes
 * that no one saw made.
 */
const DRAG_MS = 1_000;

type CapacityChange = Extract<Change, { set: "capacity" }>;

export class Drags {
  /** The latest change of each slider, and when it was made, in real ms. */
  #latest = new Map<string, { key: string; at: number }>();
  /** Every change that a person has made here, and the one of the same drag that overtook it. */
  #made = new Map<string, string | undefined>();

  /** A run begins anew. */
  clear() {
    this.#latest.clear();
    this.#made.clear();
  }

  /**
   * A person has made a change just now.
   * @param changes those of each run, with this one
   * @param side all runs if left out
   */
  add(what: Intervention, changes: readonly (readonly Change[])[], side: Side | undefined) {
    if (what.set !== "capacity") return;
    const now = performance.now();
    changes.forEach((all, one) => {
      const change = side === undefined || side === one ? all.findLast((made) => made.set === "capacity" && made.model === what.model) : undefined;
      if (change?.set !== "capacity") return;
      const slider = `${one} ${change.model}`;
      const key = keyOf(one, change);
      const before = this.#latest.get(slider);
      if (before && before.key !== key && now - before.at < DRAG_MS) this.#made.set(before.key, key);
      this.#made.set(key, undefined);
      this.#latest.set(slider, { key, at: now });
    });
  }

  /** The changes of a run that are worth a mark. One whose drag went on in a future that is gone is. */
  marked(changes: readonly Change[], side: number) {
    /** The changes that come later, and when the next one of each model comes. */
    const later = new Set<string>();
    const next = new Map<string, number>();
    return changes.toReversed().filter((change) => {
      if (change.set !== "capacity") return true;
      const { model, at_ms } = change;
      const key = keyOf(side, change);
      const isLast = this.#made.has(key) ? !later.has(this.#made.get(key) ?? "") : !((next.get(model) ?? Infinity) - at_ms < DRAG_MS);
      later.add(key);
      next.set(model, at_ms);
      return isLast;
    }).reverse();
  }
}

const keyOf = (side: number, { model, at_ms, slots }: CapacityChange) => `${side} ${model} ${at_ms} ${slots}`;
