// @ts-check
// The queue of each fairness group: tasks that wait for a worker, tasks that have one against the group's limit, the
// group's weight, and what it owes after borrowing.
import { count } from "../format.js";
import { Figure, Flag, make, section, StackedBar, Text, UNBOUNDED, whyButton } from "./dom.js";

/** @typedef {import("./view").View} View */
/** @typedef {import("./view").On} On */
/** @typedef {import("../pkg/tidegate_playground.js").Layout} Layout */
/** @typedef {import("../pkg/tidegate_playground.js").GroupSample} GroupSample */

/** A weight, to three digits. @param {number} weight */
const weigh = (weight) => String(Number(weight.toPrecision(3)));

/** The least of 1, 2, 5, 10, 20... that is not below `value`. @param {number} value */
function roundUp(value) {
  let top = 1;
  for (let turn = 0; top < value; turn += 1) top *= turn % 3 === 1 ? 2.5 : 2;
  return top;
}

class Group {
  element;
  #queued = new Figure("queued");
  #running = new Figure("running");
  #limit = new Figure("limit");
  #debt = new Figure("debt");
  #weight = new Figure("weight", weigh);
  #slots = new StackedBar(["running", "beyond", "limit-mark"]);
  #queue = new StackedBar(["queued"]);
  #owes;
  #bounded;

  /** @param {string} name @param {string} kind @param {() => void} ask */
  constructor(name, kind, ask) {
    const debt = make("span", { class: "group-debt" }, "owes ", this.#debt.element);
    this.element = whyButton(
      "group-row",
      ask,
      make("span", { class: "group-name" }, make("strong", {}, name), make("span", { class: "soft" }, kind)),
      make("span", { class: "group-weight soft" }, "weight ", this.#weight.element, debt),
      make("span", { class: "group-bars" }, this.#slots.element, this.#queue.element),
      make("span", { class: "group-figure" }, make("span", { class: "soft" }, "running"), make("span", {}, this.#running.element, make("span", { class: "of-limit soft" }, " / ", this.#limit.element))),
      make("span", { class: "group-figure" }, make("span", { class: "soft" }, "queued"), this.#queued.element),
    );
    this.#owes = new Flag(this.element, "owes");
    this.#bounded = new Flag(this.element, "bounded");
  }

  /** @param {GroupSample} group @param {number} slots what the upper bar's width stands for @param {number} tasks the same for the lower */
  show({ queued, running, limit, debt, weight }, slots, tasks) {
    this.#queued.set(queued);
    this.#running.set(running);
    this.#debt.set(debt);
    this.#weight.set(weight);
    this.#owes.set(debt > 0);
    const bound = limit ?? UNBOUNDED;
    this.#limit.set(bound);
    this.#bounded.set(bound < UNBOUNDED);
    const at = Math.min(1, bound / slots);
    this.#slots.place(0, 0, Math.min(running, bound) / slots);
    this.#slots.place(1, Math.min(running, bound) / slots, running / slots);
    this.#slots.place(2, Math.max(0, at - 0.006), at);
    this.#queue.place(0, 0, queued / tasks);
  }
}

/** @implements {import("./view").Component} */
export class QueueDepths {
  element;
  #groups;
  /** What a full bar stands for. It only grows, so that the bars stay comparable. */
  #slots = 4;
  #tasks = 10;
  #scale;

  /** @param {HTMLElement} parent @param {Layout} layout @param {On} on */
  constructor(parent, layout, on) {
    const { element } = section("queues", "Queues", "Tasks with a worker, against their group's limit, and tasks that wait for one");
    this.element = element;
    this.#groups = layout.groups.map(({ name, kind }, index) => new Group(name, kind, () => on.why({ group: index })));
    this.#scale = new Text(make("p", { class: "stage-foot" }));
    element.append(make("div", { class: "group-list" }, ...this.#groups.map((group) => group.element)), this.#scale.element);
    parent.append(element);
  }

  /** @param {View} view */
  show({ sample }) {
    let slots = this.#slots;
    let tasks = this.#tasks;
    for (const { running, limit, queued } of sample.groups) {
      slots = Math.max(slots, running, limit !== null && limit < UNBOUNDED ? limit : 0);
      tasks = Math.max(tasks, queued);
    }
    if (slots > this.#slots) this.#slots = slots;
    if (tasks > this.#tasks) this.#tasks = roundUp(tasks);
    for (let index = 0; index < this.#groups.length; index += 1) {
      const group = sample.groups[index];
      if (group) this.#groups[index]?.show(group, this.#slots, this.#tasks);
    }
    this.#scale.set(`A full bar: ${count(this.#slots)} running, ${count(this.#tasks)} queued.`);
  }

  recolour() {}

  destroy() {
    this.element.remove();
  }
}
