// The queue of each fairness group: tasks that wait for a worker, tasks that have one against the group's limit, the
// group's weight, and what it owes after borrowing.
import { count } from "../format.ts";
import { MOST_GROUPS } from "../shown.ts";
import { Axes } from "./axes.ts";
import { Figure, Flag, make, section, StackedBar, Text, UNBOUNDED, explainButton } from "./dom.ts";
import { SamplePanel } from "./panel.ts";
import { brief } from "./labels.ts";
import type { Sample } from "./panel.ts";
import type { Only } from "../shown.ts";
import type { On, View } from "./view.ts";
import type { GroupSample, Layout } from "../pkg/tidegate_playground.js";

/** How wide the mark of a limit is, as a share of the bar. */
const MARK = 0.006;

/** A weight, to three digits. */
const weigh = (weight: number) => String(Number(weight.toPrecision(3)));

class Group {
  element;
  #queued = new Figure("queued", brief);
  #running = new Figure("running", brief);
  #limit = new Figure("limit", brief);
  #debt = new Figure("debt");
  #weight = new Figure("weight", weigh);
  #slots = new StackedBar("slots-stack", 4);
  #queue = new StackedBar("queue-stack", 1);
  #name = new Text(make("strong", { class: "group-name" }));
  #owes;
  #bounded;

  constructor(ask: () => void) {
    const debt = make("span", { class: "group-debt" }, "owes ", this.#debt.element);
    this.element = explainButton(
      "group-row",
      ask,
      make(
        "span",
        { class: "group-head" },
        this.#name.element,
        debt,
        make("span", { class: "group-weight soft" }, "weight ", this.#weight.element),
      ),
      make("span", { class: "group-bars" }, this.#slots.element, this.#queue.element),
      make("span", { class: "group-figure" }, make("span", { class: "soft" }, "running"), make("span", {}, this.#running.element, make("span", { class: "of-limit soft" }, " / ", this.#limit.element))),
      make("span", { class: "group-figure" }, make("span", { class: "soft" }, "queued"), make("span", {}, this.#queued.element)),
    );
    this.#owes = new Flag(this.element, "owes");
    this.#bounded = new Flag(this.element, "bounded");
  }

  /** Stands for the group of this name from now on. */
  call(name: string) {
    if (name === this.#name.text) return;
    this.#name.set(name);
    this.element.title = `${name}: why?`;
  }

  /**
   * @param slots what the upper bar's width stands for
   * @param tasks the same for the lower
   */
  show({ queued, running, limit, debt, weight }: GroupSample, slots: number, tasks: number) {
    this.#queued.set(queued);
    this.#running.set(running);
    this.#debt.set(debt);
    this.#weight.set(weight);
    this.#owes.set(debt > 0);
    const bound = limit ?? UNBOUNDED;
    this.#limit.set(bound);
    this.#bounded.set(bound < UNBOUNDED);
    // In front of each other: workers within the limit, the room up to it, its mark, workers beyond it.
    const at = Math.min(1, bound / slots);
    const mark = bound < UNBOUNDED ? MARK : 0;
    this.#slots.end(0, Math.min(running / slots, at - mark));
    this.#slots.end(1, bound < UNBOUNDED ? at - mark : 0);
    this.#slots.end(2, bound < UNBOUNDED ? at : 0);
    this.#slots.end(3, running / slots);
    this.#slots.draw();
    this.#queue.end(0, queued / tasks);
    this.#queue.draw();
  }
}

export class QueueDepths extends SamplePanel {
  #groups;
  #axes;
  #scale;
  #others = new Text(make("p", { class: "dashboard-foot" }));
  /** The group that each row shows. */
  #shown: number[];
  #on;
  /**
   * The groups that stay while a person is at the list: a row must not become another's under the pointer or the focus.
   */
  #held: number[] | undefined;

  /** @param axes those of a dashboard beside this one, if there is one */
  constructor(parent: HTMLElement, layout: Layout, on: On, axes: Axes = new Axes()) {
    const { element } = section("queues", "Queues", "Running against each group's limit, and waiting");
    super(element, parent);
    this.#on = on;
    this.#axes = axes;
    this.#shown = layout.groups.slice(0, MOST_GROUPS).map((_, index) => index);
    this.#groups = this.#shown.map((_, row) => new Group(() => on.why({ group: this.#shown[row] ?? row })));
    this.#groups.forEach((group, row) => group.call(layout.groups[row]?.name ?? ""));
    this.#scale = new Text(make("p", { class: "dashboard-foot" }));
    const list = make("div", { class: "group-list" }, ...this.#groups.map((group) => group.element));
    element.append(list, this.#scale.element, this.#others.element);
    this.#others.element.hidden = this.#groups.length === layout.groups.length;
    if (!this.#others.element.hidden) this.#watch(list);
  }

  /** @override */
  take(view: View) {
    super.take(view);
    for (const { running, limit, queued } of view.sample.groups) {
      this.#axes.growBars(Math.max(running, limit !== null && limit < UNBOUNDED ? limit : 0), queued);
    }
  }

  /** @override */
  drawSample(sample: Sample) {
    // Pictures that were taken before the worker was notified.
    if (this.#held && String(this.#held) !== String(sample.only?.groups)) return false;
    if (sample.only) this.#showOnly(sample, sample.only);
    const { slots, tasks } = this.#axes;
    for (let index = 0; index < this.#groups.length; index += 1) {
      const group = sample.groups[index];
      if (!group) continue;
      this.#groups[index]?.call(group.name);
      this.#groups[index]?.show(group, slots, tasks);
    }
    this.#scale.set(`A full bar: ${count(slots)} running, ${count(tasks)} queued.`);
    return false;
  }

  /** Notices when a person comes and goes. */
  #watch(list: HTMLElement) {
    const look = () => this.#hold(list.matches(":hover, :focus-within"));
    for (const event of ["pointerenter", "pointerleave", "focusin", "focusout"]) list.addEventListener(event, look);
  }

  #hold(isHeld: boolean) {
    if (isHeld === Boolean(this.#held)) return;
    this.#held = isHeld ? this.#shown : undefined;
    this.#on.hold(this.#held);
  }

  /** Of very many groups, those with the most waiting, or those that are held. */
  #showOnly({ groups }: Sample, { groups: shown, others }: Only) {
    this.#shown = shown;
    this.#others.set(
      `The ${count(groups.length)} groups ${this.#held ? "stay while you are here" : "with the most waiting are shown"}. ` +
        `The ${count(others.groups)} others: ${count(others.running)} running, ${count(others.queued)} queued.`,
    );
  }
}
