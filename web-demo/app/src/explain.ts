// The panel that says why something waits. It follows the run while it is open; Escape closes it, and the focus goes
// back to what was clicked.
import { buttonById, byId, make, part, say, wordsOf } from "./dom.ts";
import { count } from "./format.ts";
import type { Side } from "./messages.ts";
import type { About, Layout, Why } from "./pkg/tidegate_playground.js";
import type { Simulation } from "./simulation.ts";

/** The answer is asked for anew this often while the run goes on, in real ms: a person has to be able to read it. */
const PAUSE_MS = 400;

export class ExplainPanel {
  #simulation;
  #panel = byId("explain");
  #shown: { side: Side, about: About } | undefined;
  #cameFrom: HTMLElement | undefined;
  #askedAt = 0;
  #isAsking = false;
  /** Whether the run stood still anew while the answer was on its way. */
  #asksAgain = false;

  constructor(simulation: Simulation) {
    this.#simulation = simulation;
    simulation.on("frame", ({ playing }) => {
      // The last frame before a pause is the one that stays.
      if (!playing || performance.now() - this.#askedAt > PAUSE_MS) void this.#ask();
    });
    // What it came from is about to be built anew, and a person who is elsewhere stays there.
    simulation.on("loaded", () => {
      this.#cameFrom = undefined;
      this.close(this.#panel.contains(document.activeElement));
    });
    buttonById("explain-close").addEventListener("click", () => this.close());
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.#shown && !event.defaultPrevented) this.close();
    });
  }

  open(side: Side, about: About) {
    if (!this.#shown) this.#cameFrom = document.activeElement instanceof HTMLElement ? document.activeElement : undefined;
    this.#shown = { side, about };
    this.#panel.hidden = false;
    const layout = this.#simulation.layouts[side];
    const which = this.#simulation.mode === "two" ? (side === 0 ? " (left)" : " (right)") : "";
    say(byId("explain-title"), `${layout ? titleOf(about, layout) : "Why?"}${which}`);
    byId("explain-title").focus();
    void this.#ask();
  }

  close(givesFocus = true) {
    if (!this.#shown) return;
    this.#shown = undefined;
    this.#panel.hidden = true;
    if (!givesFocus) return;
    this.#cameFrom?.focus();
    // What it came from may be gone, or in a view that is not in front.
    if (document.activeElement !== this.#cameFrom) part(document, "[role=tabpanel]:not([hidden])", HTMLElement).focus({ preventScroll: true });
  }

  async #ask() {
    const shown = this.#shown;
    if (!shown) return;
    if (this.#isAsking) {
      this.#asksAgain = true;
      return;
    }
    this.#isAsking = true;
    this.#asksAgain = false;
    this.#askedAt = performance.now();
    try {
      const answer = await this.#simulation.runner.ask((worker, run) => worker.why(run, shown.side, shown.about));
      if (this.#shown === shown) this.#show(answer);
    } catch (error) {
      if (this.#shown === shown) this.#show([], wordsOf(error));
    } finally {
      this.#isAsking = false;
    }
    if (this.#asksAgain) void this.#ask();
  }

  #show(answer: readonly Why[], problem?: string) {
    say(byId("explain-lead"), problem ?? (answer.length === 0 ? "Nothing waits here now." : "At this instant:"));
    const items = answer.map(({ what, why, count: many }) => {
      const head = make("strong", {}, ...withNames(what));
      return make("li", {}, many > 1 ? make("span", { class: "many" }, `${count(many)}×`) : undefined, head, make("p", {}, ...withNames(why)));
    });
    const list = byId("explain-list");
    const text = answer.map(({ what, why, count: many }) => `${many}${what}${why}`).join("\n");
    if (list.dataset.text === text) return;
    list.dataset.text = text;
    list.replaceChildren(...items);
  }
}

/** Text in which names stand between backquotes. */
function withNames(text: string) {
  return text.split("`").map((words, index) => (index % 2 === 1 ? make("code", {}, words) : words));
}

function titleOf(about: About, layout: Layout) {
  if (about === "row_groups") return "Why are no more rows in work?";
  if ("column" in about) return `Why does the column ${layout.columns[about.column]?.name} wait?`;
  if ("group" in about) return `Why does the group ${layout.groups[about.group]?.name} wait?`;
  if ("provider" in about) return `Why do calls to ${layout.providers[about.provider]?.name} wait?`;
  if ("slots" in about) return `Why are slots of ${layout.slots[about.slots]?.name} idle?`;
  return `Why does the worker in slot ${about.lane + 1} wait?`;
}
