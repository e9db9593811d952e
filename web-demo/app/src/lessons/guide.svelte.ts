// Leads through the lessons: it sets the page up, notices when a step was done, and goes on to the next.
import { mount } from "svelte";
import { announce } from "../announce.ts";
import { complete, usualSides } from "../compare/sides.ts";
import { byId } from "../dom.ts";
import { LESSONS } from "./lessons.ts";
import LessonList from "./LessonList.svelte";
import LessonPanel from "./LessonPanel.svelte";
import type { Simulation } from "../simulation.ts";
import type { Tabs } from "../tabs.ts";
import type { Machines } from "../machines/machines.svelte.ts";
import type { Explain } from "../explain/explain.svelte.ts";
import type { ScenarioLesson, Since } from "./lessons.ts";

/** How long a step stays once it is done, in real ms. */
const SEEN_MS = 1_500;

export class Guide {
  #simulation;
  #tabs;
  #openMachines;
  #machines: Machines | undefined;
  /** The lesson under way; negative: none. */
  index = $state(-1);
  step = $state(0);
  isDone = $state(false);
  /** Whether the page was built anew since the step began: what it points at is another element then. */
  builds = $state(0);
  /** Whether the run goes on. */
  plays = $state(false);
  /** The lessons whose last step was done. */
  finished = $state<number[]>([]);
  /** Whether the panel takes the focus: a person asked for this step. */
  takesFocus = $state(true);
  /** A person went back to this step: it stays until they go on. */
  #stays = false;
  #since: Since;

  lesson = $derived(LESSONS[this.index]);
  isLastStep = $derived(this.step + 1 === this.lesson?.steps.length);
  isLastLesson = $derived(this.index + 1 === LESSONS.length);

  constructor(simulation: Simulation, tabs: Tabs, explain: Explain, openMachines: () => Promise<Machines>) {
    this.#simulation = simulation;
    this.#tabs = tabs;
    this.#openMachines = openMachines;
    this.#since = this.#begin();
    mount(LessonList, { target: byId("lessons"), props: { guide: this } });
    mount(LessonPanel, { target: byId("lesson"), props: { guide: this } });
    simulation.on("changed", ({ what }) => {
      this.#since.changes.push(what);
      this.#check();
    });
    simulation.on("loaded", () => (this.builds += 1));
    simulation.on("frame", () => this.#check());
    simulation.on("phase", (phase) => {
      this.plays = phase === "playing";
      this.#check();
    });
    explain.onOpen = () => {
      this.#since.hasExplained = true;
      this.#check();
    };
  }

  async start(index: number) {
    const lesson = LESSONS[index];
    if (!lesson) return;
    try {
      if (lesson.of === "machines") await this.#beginMachines();
      else await this.#beginScenario(lesson);
    } catch (error) {
      this.#simulation.refuse(error);
      return;
    }
    this.index = index;
    this.#tabs.show(lesson.of === "machines" ? "machines" : lesson.sides ? "compare" : "explore");
    this.enter(0);
    scrollTo(0, 0);
  }

  #beginScenario({ scenario, sides, at = 0, speed }: ScenarioLesson) {
    const [mode, choices] = sides ? (["two", [complete(sides[0]), complete(sides[1])]] as const) : (["one", usualSides()] as const);
    return this.#simulation.setUp({ scenario, seed: 1, mode, choices: [...choices], changes: undefined, at, speed });
  }

  async #beginMachines() {
    this.#machines = await this.#openMachines();
    this.#machines.onLook = () => this.#check();
    await this.#machines.restart();
  }

  /** @param by a person asked for it, or went back to it; the step before was done */
  enter(step: number, by: "person" | "back" | "done" = "person") {
    this.#stays = by === "back";
    this.takesFocus = by !== "done";
    this.step = step;
    this.isDone = false;
    this.#since = this.#begin();
    // It may have been done before.
    this.#check();
  }

  goOn() {
    if (!this.isLastStep) this.enter(this.step + 1);
    else if (this.isLastLesson) this.end();
    else void this.start(this.index + 1);
  }

  end() {
    this.index = -1;
    this.#tabs.show("lessons");
    byId("tab-lessons").focus();
  }

  #begin(): Since {
    return { simulation: this.#simulation, machines: this.#machines?.sample, changes: [], from: this.#simulation.at, largestDebt: 0, hasExplained: false };
  }

  /** Notices whether the step was done. */
  #check() {
    const step = this.lesson?.steps[this.step];
    if (!step || this.isDone) return;
    this.#since.machines = this.#machines?.sample;
    const debts = this.#simulation.frame?.sides[0]?.sample.groups.map(({ debt }) => debt) ?? [];
    this.#since.largestDebt = Math.max(this.#since.largestDebt, ...debts);
    if (!step.done(this.#since)) return;
    this.isDone = true;
    this.#advance();
  }

  /**
   * Goes on to the next step of the lesson, once a person has seen that this one is done. The next lesson is
   * for them to begin.
   */
  #advance() {
    const { index, step } = this;
    if (this.isLastStep) {
      if (!this.finished.includes(index)) this.finished.push(index);
      announce("Done. The next lesson is there.");
    } else if (this.#stays) {
      announce("Done.");
    } else {
      announce("Done. The next step comes by itself.");
      setTimeout(() => {
        if (this.index === index && this.step === step && this.isDone) this.enter(step + 1, "done");
      }, SEEN_MS);
    }
  }
}
