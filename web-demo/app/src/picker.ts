// A combobox for the scenarios of all suites: a list in groups that what is typed narrows down.
import { make } from "./dom.ts";
import type { ScenarioInfo } from "./pkg/tidegate_scenarios.js";

/** What the suites are called. */
const SUITES: Record<string, string> = { playground: "Playground", builtin: "Playground", idle: "Idle suite: is a slot idle without need?", control: "Control suite: does the limit find the capacity?" };

export class Picker {
  #scenarios: readonly ScenarioInfo[] = [];
  #input;
  #list;
  #onPick;
  #options: HTMLElement[] = [];
  #active = -1;
  #chosen: string | undefined;
  #title = "";

  constructor(parent: HTMLElement, label: string, onPick: (name: string) => void) {
    this.#onPick = onPick;
    const id = `${parent.id}-list`;
    this.#input = make("input", {
      type: "text",
      role: "combobox",
      autocomplete: "off",
      spellcheck: "false",
      "aria-autocomplete": "list",
      "aria-expanded": "false",
      "aria-controls": id,
      id: `${parent.id}-input`,
    });
    this.#input.disabled = true;
    this.#list = make("div", { role: "listbox", id, "aria-label": label });
    this.#list.hidden = true;
    parent.append(make("label", { for: this.#input.id }, label), this.#input, this.#list);
    this.#input.addEventListener("input", () => this.#open(this.#input.value));
    this.#input.addEventListener("click", () => this.#open(""));
    this.#input.addEventListener("focus", () => this.#input.select());
    this.#input.addEventListener("blur", () => this.#close());
    this.#input.addEventListener("keydown", (event) => this.#onKey(event));
    // The field keeps the focus, so that a click is not a way out of it.
    this.#list.addEventListener("pointerdown", (event) => event.preventDefault());
    this.#list.addEventListener("click", (event) => {
      const option = event.target instanceof Element && event.target.closest("[role=option]");
      if (option instanceof HTMLElement) this.#pick(option);
    });
  }

  offer(scenarios: readonly ScenarioInfo[]) {
    this.#scenarios = scenarios;
    this.#input.disabled = false;
  }

  /** Says what is chosen. */
  show(name: string | undefined, title: string) {
    this.#chosen = name;
    this.#title = title;
    if (this.#list.hidden) this.#input.value = title;
  }

  #open(search: string) {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    const found = this.#scenarios.filter((one) => words.every((word) => `${one.name} ${one.title} ${one.suite}`.toLowerCase().includes(word)));
    this.#options = found.map((one, index) =>
      make(
        "div",
        { role: "option", id: `${this.#list.id}-${index}`, "data-name": one.name, "aria-selected": String(one.name === this.#chosen) },
        make("span", { class: "title" }, one.title),
        make("span", { class: "name" }, one.name),
      ),
    );
    const suites = [...new Set(found.map(({ suite }) => suite))];
    this.#list.replaceChildren(
      ...suites.map((suite) => {
        const options = this.#options.filter((_, index) => found[index]?.suite === suite);
        return make("div", { role: "group", "aria-label": SUITES[suite] ?? suite }, make("div", { class: "suite", "aria-hidden": "true" }, SUITES[suite] ?? suite), ...options);
      }),
    );
    if (found.length === 0) this.#list.replaceChildren(make("p", { class: "none" }, "No scenario is called so."));
    this.#list.hidden = false;
    this.#input.setAttribute("aria-expanded", "true");
    this.#activate(words.length > 0 ? 0 : found.findIndex(({ name }) => name === this.#chosen));
  }

  #close() {
    this.#list.hidden = true;
    this.#input.setAttribute("aria-expanded", "false");
    this.#input.removeAttribute("aria-activedescendant");
    this.#input.value = this.#title;
  }

  #activate(index: number) {
    this.#options[this.#active]?.classList.remove("active");
    this.#active = index;
    const option = this.#options[index];
    if (!option) {
      this.#input.removeAttribute("aria-activedescendant");
      return;
    }
    option.classList.add("active");
    option.scrollIntoView({ block: "nearest" });
    this.#input.setAttribute("aria-activedescendant", option.id);
  }

  #pick(option: HTMLElement) {
    const name = option.dataset.name ?? "";
    const found = this.#scenarios.find((one) => one.name === name);
    this.show(name, found?.title ?? name);
    this.#close();
    this.#onPick(name);
  }

  #onKey(event: KeyboardEvent) {
    const isOpen = !this.#list.hidden;
    const option = this.#options[this.#active];
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!isOpen) this.#open("");
      else this.#activate(Math.min(Math.max(this.#active + (event.key === "ArrowDown" ? 1 : -1), 0), this.#options.length - 1));
    } else if (event.key === "Enter" && isOpen && option) {
      event.preventDefault();
      this.#pick(option);
    } else if (event.key === "Escape" && isOpen) {
      // Escape closes one thing at a time.
      event.preventDefault();
      this.#close();
    }
  }
}
