// The queue of each fairness group: tasks that wait for a worker, tasks that have one against the group's
// limit, the group's weight, and its debt from borrowing.
import { flushSync } from "svelte";
import { MOST_GROUPS } from "../shown.ts";
import type { Axes } from "./axes.ts";
import { UNBOUNDED } from "../utilisation.ts";
import { Latest } from "./latest.svelte.ts";
import { Panel } from "./panel.ts";
import QueueDepthsView from "./QueueDepths.svelte";
import type { Sample } from "./panel.ts";
import type { Layout } from "../pkg/tidegate_playground.js";
import type { On, View } from "./view.ts";

export interface QueuesShown {
  sample: Sample;
  /** What a full bar stands for: workers, and tasks. */
  slots: number;
  tasks: number;
}

export class QueueDepths extends Panel {
  #axes;
  #latest = new Latest<QueuesShown>();
  #on;
  #sample: Sample | undefined;
  /** The group that each row shows. */
  #shown: number[];
  /**
   * The groups that stay while a person is at the list: a row must not become another's under the pointer or
   * the focus.
   */
  #held: number[] | undefined;

  /** @param axes those of a dashboard beside this one, if there is one */
  constructor(parent: Element, layout: Layout, on: On, axes: Axes) {
    super();
    this.#axes = axes;
    this.#on = on;
    this.#shown = layout.groups.slice(0, MOST_GROUPS).map((_, index) => index);
    this.mount(QueueDepthsView, parent, {
      layout,
      latest: this.#latest,
      ask: (row: number) => on.why({ group: this.#shown[row] ?? row }),
      hold: (isHeld: boolean) => this.#hold(isHeld),
    });
  }

  /** @override */
  take({ sample }: View) {
    this.#sample = sample;
    this.isStale = true;
    for (const { running, limit, queued } of sample.groups) {
      this.#axes.growBars(Math.max(running, limit !== null && limit < UNBOUNDED ? limit : 0), queued);
    }
  }

  /** @override */
  draw() {
    this.isStale = false;
    const sample = this.#sample;
    // Pictures that were taken before the worker was notified.
    if (!sample || (this.#held && String(this.#held) !== String(sample.only?.groups))) return;
    if (sample.only) this.#shown = sample.only.groups;
    const { slots, tasks } = this.#axes;
    this.#latest.value = { sample, slots, tasks };
    flushSync();
  }

  #hold(isHeld: boolean) {
    if (isHeld === Boolean(this.#held)) return;
    this.#held = isHeld ? this.#shown : undefined;
    this.#on.hold(this.#held);
  }
}
