// The guided tour: it sets the page up, says what to look at and what to do, and notices when it was done.
import { announce } from "../announce.ts";
import { complete } from "../compare/sides.ts";
import { byId, make } from "../dom.ts";
import { LESSONS } from "./lessons.ts";
import type { Simulation } from "../simulation.ts";
import type { Tabs } from "../tabs.ts";
import type { Since } from "./lessons.ts";

/** How long a step stays once it is done, in real ms. */
const SEEN_MS = 1_500;

export class Guide {
  #simulation;
  #tabs;
  #coach = byId("coach");
  #lesson = -1;
  #step = 0;
  #isDone = false;
  /** A person went back to this step: it stays until they go on. */
  #stays = false;
  #since: Since;
  #next: HTMLButtonElement | undefined;
  #starts = LESSONS.map(() => make("button", { type: "button" }, "Start"));

  constructor(simulation: Simulation, tabs: Tabs) {
    this.#simulation = simulation;
    this.#tabs = tabs;
    this.#since = { simulation, changes: [], from: 0, most: 0, asked: false };
    const intro = make(
      "section",
      { class: "panel", "aria-label": "What this is about" },
      make("h2", {}, "What adaptive admission does, in a minute"),
      make(
        "p",
        {},
        "A service can take so many calls at once, and it does not say how many: it answers 429 when there were too many. tidegate keeps just as many calls out as the service can take. " +
          "Each refusal lowers the limit, successes raise it again; what waits is shared out fairly, and nothing is lost or done twice.",
      ),
      make("p", { class: "lead" }, "Five short lessons show how. Each sets the page up by itself; everything on it stays yours to touch."),
    );
    const list = make("ol", { class: "lessons" });
    LESSONS.forEach((lesson, index) => {
      const start = this.#starts[index] as HTMLButtonElement;
      start.setAttribute("aria-label", `Start lesson ${index + 1}: ${lesson.title}`);
      start.addEventListener("click", () => void this.start(index));
      list.append(make("li", { class: "panel" }, make("h3", {}, lesson.title), make("p", { class: "lead" }, lesson.about), start));
    });
    byId("lessons").append(intro, list);
    simulation.on("changed", ({ what }) => {
      this.#since.changes.push(what);
      this.#look();
    });
    simulation.on("frame", () => this.#look());
    simulation.on("phase", () => this.#look());
    new MutationObserver(() => {
      if (byId("explain").hidden) return;
      this.#since.asked = true;
      this.#look();
    }).observe(byId("explain"), { attributeFilter: ["hidden"] });
  }

  async start(index: number) {
    const lesson = LESSONS[index];
    if (!lesson) return;
    const [left = {}, right = {}] = lesson.sides ?? [];
    try {
      await this.#simulation.setUp({
        scenario: lesson.scenario,
        seed: 1,
        mode: lesson.sides ? "two" : "one",
        choices: [complete(left), complete(right)],
        changes: undefined,
        at: 0,
        speed: lesson.speed,
      });
    } catch (error) {
      this.#simulation.refuse(error);
      return;
    }
    this.#lesson = index;
    this.#tabs.show(lesson.sides ? "compare" : "explore");
    this.#enter(0);
    this.#coach.scrollIntoView({ block: "nearest" });
  }

  /** @param by a person asked for it, or went back to it; the step before was done */
  #enter(step: number, by: "person" | "back" | "done" = "person") {
    this.#stays = by === "back";
    this.#step = step;
    this.#isDone = false;
    this.#since = { simulation: this.#simulation, changes: [], from: this.#simulation.at, most: 0, asked: false };
    this.#draw(by !== "done");
    // It may have been done before.
    this.#look();
  }

  /** @param takesFocus else only where the focus would be lost */
  #draw(takesFocus: boolean) {
    const lesson = LESSONS[this.#lesson];
    const step = lesson?.steps[this.#step];
    this.#coach.hidden = !lesson;
    if (!lesson || !step) return;
    const isLast = this.#step === lesson.steps.length - 1;
    const dots = lesson.steps.map((_, index) => make("span", { class: index < this.#step ? "past" : index === this.#step ? "now" : "" }));
    const back = make("button", { type: "button" }, "Back");
    back.disabled = this.#step === 0;
    back.addEventListener("click", () => this.#enter(this.#step - 1, "back"));
    const isEnd = isLast && this.#lesson === LESSONS.length - 1;
    this.#next = make("button", { type: "button", id: "coach-next" }, isEnd ? "Finish" : isLast ? "Next lesson" : "Next");
    this.#next.addEventListener("click", () => this.#goOn());
    const end = make("button", { type: "button", class: "plain" }, "End tour");
    end.addEventListener("click", () => this.#end());
    const show = make("button", { type: "button", class: "plain" }, "Show me where");
    show.addEventListener("click", () => this.#point(step.target));
    const title = make("h2", { tabindex: "-1" }, lesson.title);
    const hadFocus = this.#coach.contains(document.activeElement);
    this.#coach.replaceChildren(
      make("header", {}, make("p", { class: "which" }, `Lesson ${this.#lesson + 1} of ${LESSONS.length}`), title, make("p", { class: "dots", role: "img", "aria-label": `Step ${this.#step + 1} of ${lesson.steps.length}` }, ...dots)),
      make("p", { class: "look" }, step.look),
      make("p", { class: "act" }, step.act),
      make("div", { class: "row" }, back, this.#next, show, make("span", { class: "done", "aria-hidden": "true" }, "Done"), end),
    );
    if (takesFocus || hadFocus) title.focus({ preventScroll: true });
    this.#spot(step.target);
    this.#mark();
  }

  #goOn() {
    const lesson = LESSONS[this.#lesson];
    if (!lesson) return;
    if (this.#step < lesson.steps.length - 1) this.#enter(this.#step + 1);
    else if (this.#lesson < LESSONS.length - 1) void this.start(this.#lesson + 1);
    else this.#end();
  }

  #end() {
    this.#lesson = -1;
    this.#coach.hidden = true;
    this.#spot(undefined);
    this.#tabs.show("lessons");
    byId("tab-lessons").focus();
  }

  /** Notices whether the step was done. */
  #look() {
    const step = LESSONS[this.#lesson]?.steps[this.#step];
    if (!step || this.#isDone) return;
    const owed = this.#simulation.frame?.sides[0]?.sample.groups.map(({ debt }) => debt) ?? [];
    this.#since.most = Math.max(this.#since.most, ...owed);
    if (!step.done(this.#since)) return;
    this.#isDone = true;
    this.#mark();
    this.#advance();
  }

  /** Goes on to the next step of the lesson, once a person has seen that this one is done. The next lesson is for them to begin. */
  #advance() {
    const [index, step] = [this.#lesson, this.#step];
    if (step + 1 >= (LESSONS[index]?.steps.length ?? 0)) {
      announce("Done. The next lesson is there.");
      return;
    }
    if (this.#stays) {
      announce("Done.");
      return;
    }
    announce("Done. The next step comes by itself.");
    setTimeout(() => {
      if (this.#lesson === index && this.#step === step && this.#isDone) this.#enter(step + 1, "done");
    }, SEEN_MS);
  }

  #mark() {
    this.#coach.toggleAttribute("data-done", this.#isDone);
    this.#next?.classList.toggle("primary", this.#isDone);
    if (this.#isDone) this.#spot(undefined);
  }

  /** Outlines what to act on. */
  #spot(selector: string | undefined) {
    for (const one of document.querySelectorAll(".spot")) one.classList.remove("spot");
    if (selector) document.querySelector(selector)?.classList.add("spot");
  }

  /** Brings what to act on into view, with the focus. */
  #point(selector: string) {
    const found = document.querySelector(selector);
    if (!(found instanceof HTMLElement)) return;
    const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    found.scrollIntoView({ block: "center", behavior: isCalm ? "auto" : "smooth" });
    found.focus({ preventScroll: true });
    this.#spot(selector);
  }
}
