// Explains why something waits. The explanation follows the run while it is open; Escape closes it, and the
// focus goes back to what was clicked.
import { mount } from "svelte";
import { messageOf } from "../errors.ts";
import ExplainPanel from "./ExplainPanel.svelte";
import { resourceLabel } from "../dashboard/labels.ts";
import type { Past } from "../dashboard/view.ts";
import type { Side } from "../messages.ts";
import type { Layout, PlaygroundAbout as About, Why } from "../pkg/tidegate_playground.js";
import type { Simulation } from "../simulation.ts";

/**
 * The core is asked anew this often while the run goes on, in real ms: a person has to be able to read the
 * answer.
 */
const PAUSE_MS = 400;

export class Explain {
  /**
   * What is explained; undefined while the panel is closed. `past` is there if it lies before the present
   * instant.
   */
  subject = $state.raw<{ side: Side; about: About; past: Past | undefined } | undefined>();
  answer = $state.raw<readonly Why[]>([]);
  problem = $state("");
  /** Called when a person opens an explanation. */
  onOpen: () => void = () => {};
  #simulation;
  #cameFrom: HTMLElement | undefined;
  #askedAt = 0;
  #isAsking = false;
  /** Whether the run stood still anew while the answer was on its way. */
  #asksAgain = false;

  title = $derived.by(() => {
    if (!this.subject) return "";
    const { side, about } = this.subject;
    const layout = this.#simulation.layouts[side];
    const which = this.#simulation.mode === "two" ? (side === 0 ? " (left)" : " (right)") : "";
    return `${layout ? titleOf(about, layout, this.subject.past !== undefined) : "Why?"}${which}`;
  });

  constructor(simulation: Simulation) {
    this.#simulation = simulation;
    const panel = mount(ExplainPanel, { target: document.body, props: { explain: this } });
    simulation.on("frame", ({ playing }) => {
      // The last frame before a pause is the one that stays.
      if (!playing || performance.now() - this.#askedAt > PAUSE_MS) void this.#ask();
    });
    // What it came from is about to be built anew, and a person who is elsewhere stays there.
    simulation.on("loaded", () => {
      this.#cameFrom = undefined;
      this.close(panel.hasFocus());
    });
  }

  open(side: Side, about: About, past?: Past) {
    if (!this.subject) this.#cameFrom = document.activeElement instanceof HTMLElement ? document.activeElement : undefined;
    this.subject = { side, about, past };
    this.answer = [];
    this.problem = "";
    this.onOpen();
    void this.#ask();
  }

  close(givesFocus = true) {
    if (!this.subject) return;
    this.subject = undefined;
    if (!givesFocus) return;
    this.#cameFrom?.focus();
    // What it came from may be gone, or in a view that is not in front.
    if (document.activeElement !== this.#cameFrom) document.querySelector<HTMLElement>("[role=tabpanel]:not([hidden])")?.focus({ preventScroll: true });
  }

  /** Goes back to the instant of the subject, where the core can say why. */
  goThere() {
    if (!this.subject?.past) return;
    const { side, about, past } = this.subject;
    this.#simulation.pause();
    this.#simulation.seek(past.at);
    this.subject = { side, about, past: undefined };
  }

  async #ask() {
    const { subject } = this;
    if (!subject || subject.past) return;
    if (this.#isAsking) {
      this.#asksAgain = true;
      return;
    }
    this.#isAsking = true;
    this.#asksAgain = false;
    this.#askedAt = performance.now();
    try {
      const answer = await this.#simulation.runner.ask((worker, run) => worker.why(run, subject.side, subject.about));
      if (this.subject === subject) [this.answer, this.problem] = [answer, ""];
    } catch (error) {
      if (this.subject === subject) [this.answer, this.problem] = [[], messageOf(error)];
    } finally {
      this.#isAsking = false;
    }
    if (this.#asksAgain) void this.#ask();
  }
}

function titleOf(about: About, layout: Layout, isPast: boolean) {
  if (about === "row_groups") return "Why are no more rows in work?";
  if ("column" in about) return `Why does the column ${layout.columns[about.column]?.name} wait?`;
  if ("group" in about) return `Why does the group ${layout.groups[about.group]?.name} wait?`;
  if ("provider" in about) return `Why do calls to ${layout.providers[about.provider]?.name} wait?`;
  if ("slots" in about) return `Why are slots of ${resourceLabel(layout.slots[about.slots]?.name ?? "")} idle?`;
  return isPast ? `What did the worker in slot ${about.lane + 1} do?` : `Why does the worker in slot ${about.lane + 1} wait?`;
}
