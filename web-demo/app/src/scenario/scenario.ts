// The scenario as TOML, to read and to edit. What cannot be read or run is shown at its line and changes nothing.
import { byId, make, say, messageOf } from "../dom.ts";
import type { Simulation } from "../simulation.ts";

export class ScenarioView {
  #simulation;
  #text = make("textarea", { id: "toml", spellcheck: "false", autocomplete: "off", autocapitalize: "off", wrap: "off", "aria-label": "The scenario as TOML", "aria-describedby": "toml-state" });
  #lines = make("div", { class: "lines", "aria-hidden": "true" });
  #state = make("p", { class: "remark", id: "toml-state", role: "status" });
  #apply = make("button", { type: "button", class: "primary", id: "apply" }, "Apply");
  #revert = make("button", { type: "button", id: "revert" }, "Revert");
  /** As it runs now. */
  #written = "";
  /** The line that something is wrong with, from 1. */
  #wrong: number | undefined;

  constructor(simulation: Simulation) {
    this.#simulation = simulation;
    const hint = make("p", { class: "lead" }, "Durations are in milliseconds, in fields that end in _ms. Changes made by hand are not in here; Share and export writes them in.");
    const editor = make("div", { class: "editor" }, this.#lines, this.#text);
    const row = make("div", { class: "row" }, this.#apply, this.#revert, this.#state);
    byId("scenario").append(make("section", { class: "panel", "aria-label": "Edit the scenario" }, make("h2", {}, "Scenario"), hint, editor, row));
    this.#apply.addEventListener("click", () => void this.#use());
    this.#revert.addEventListener("click", () => this.#fill(this.#written));
    this.#text.addEventListener("input", () => this.#edited());
    this.#text.addEventListener("scroll", () => (this.#lines.scrollTop = this.#text.scrollTop));
    this.#text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      void this.#use();
    });
    simulation.on("loaded", () => this.show());
  }

  /** The view has been put in front, or another scenario runs. */
  show() {
    if (!byId("scenario").hidden) void this.#refresh();
  }

  async #refresh() {
    const { base } = this.#simulation;
    if (!base) return;
    const isEdited = this.#text.value !== this.#written;
    try {
      const written = await this.#simulation.runner.ask((worker) => worker.writeScenario(base));
      const isOther = written !== this.#written;
      this.#written = written;
      // What a person is writing stays while the same scenario starts anew.
      if ((isOther || !isEdited) && this.#text.value !== written) this.#fill(written);
      this.#offer();
    } catch (error) {
      this.#say(`It cannot be written as TOML: ${messageOf(error)}`, true);
    }
  }

  #fill(text: string) {
    this.#text.value = text;
    this.#edited();
  }

  #edited() {
    this.#wrong = undefined;
    this.#number();
    this.#offer();
    this.#text.removeAttribute("aria-invalid");
    this.#say(this.#apply.disabled ? "" : "Edited; not running yet.");
  }

  /** Offers to apply and to revert what has been edited. */
  #offer() {
    const isEdited = this.#text.value !== this.#written;
    this.#apply.disabled = !isEdited;
    this.#revert.disabled = !isEdited;
  }

  async #use() {
    try {
      const scenario = await this.#simulation.runner.ask((worker) => worker.readScenario(this.#text.value));
      await this.#simulation.use(scenario, undefined);
      await this.#refresh();
      this.#say("It runs.");
    } catch (error) {
      this.#refuse(messageOf(error));
    }
  }

  /** @param problem begins with `line 3, column 9: ` where the place is known */
  #refuse(problem: string) {
    const place = /^line (\d+)(?:, column (\d+))?/.exec(problem);
    this.#text.setAttribute("aria-invalid", "true");
    this.#say(problem, true);
    this.#text.focus();
    if (!place) return;
    this.#wrong = Number(place[1]);
    this.#number();
    const lines = this.#text.value.split("\n");
    const start = lines.slice(0, this.#wrong - 1).reduce((sum, line) => sum + line.length + 1, 0);
    this.#text.setSelectionRange(start, start + (lines[this.#wrong - 1]?.length ?? 0));
    const height = this.#text.scrollHeight / Math.max(lines.length, 1);
    this.#text.scrollTop = Math.max(0, (this.#wrong - 5) * height);
  }

  #number() {
    const lines = this.#text.value.split("\n").length;
    if (this.#lines.childElementCount !== lines) this.#lines.replaceChildren(...Array.from({ length: lines }, (_, index) => make("span", {}, String(index + 1))));
    for (const wrong of this.#lines.querySelectorAll(".wrong")) wrong.classList.remove("wrong");
    if (this.#wrong !== undefined) this.#lines.children[this.#wrong - 1]?.classList.add("wrong");
  }

  #say(text: string, isProblem: boolean = false) {
    say(this.#state, text);
    this.#state.classList.toggle("problem", isProblem);
  }
}
