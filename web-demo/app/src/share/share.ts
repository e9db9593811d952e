// What can be taken away: a link, the trace, the decisions, the scenario and the results.
import * as Comlink from "comlink";
import { byId, make, say, messageOf } from "../dom.ts";
import { percent, span } from "../format.ts";
import { write } from "./link.ts";
import type { Side } from "../messages.ts";
import type { Simulation } from "../simulation.ts";
import type { View } from "../tabs.ts";

/** Addresses longer than this are cut off by some programs that pass them on. */
const LONG_LINK = 8_000;

interface Download {
  name: string;
  parts: string[];
  type: string;
  /** More to say of it. */
  about?: string;
}

export class SharePanel {
  #simulation;
  #view;
  #link = make("input", { type: "text", readonly: "", "aria-label": "Link to this set-up", id: "link" });
  #copied = make("p", { class: "remark", role: "status" });
  #side = make("select", { id: "share-side" }, new Option("left", "0"), new Option("right", "1"));
  #sideField = make("label", { class: "field" }, make("span", {}, "Of the run on the"), this.#side);
  #whole = make("input", { type: "checkbox", id: "share-whole" });
  /** How often the link was asked for: of the answers, only the last counts. */
  #asked = 0;
  #upTo = make("strong", {}, "");

  /** @param view the view that the link leads to */
  constructor(simulation: Simulation, view: () => View) {
    this.#simulation = simulation;
    this.#view = view;
    const copy = make("button", { type: "button", class: "primary", id: "copy" }, "Copy link");
    copy.addEventListener("click", () => void this.#copy());
    this.#link.addEventListener("focus", () => this.#link.select());
    const link = card("link", "A link to all of this", "Scenario, seed, changes, position and view. Whoever opens it sees the very same decisions.", make("div", { class: "row" }, this.#link, copy), this.#copied);
    const range = make("div", { class: "panel range" }, this.#sideField, make("label", { class: "check" }, this.#whole, make("span", {}, "The whole run, to its end")), make("p", { class: "remark" }, "Else up to the present instant: ", this.#upTo));
    const cards = make(
      "div",
      { class: "cards" },
      this.#download("trace", "Trace for Perfetto", "Every task, call and wait as a timeline. Open it at ui.perfetto.dev or in chrome://tracing.", () => this.#export("trace")),
      this.#download("decisions", "Decision log", "Every command and decision of the run, a line each. tidegate replays it to the same digest.", () => this.#export("decisions")),
      this.#download("toml", "Scenario", "As TOML, with the changes made by hand. Run it with: tidegate simulate FILE", () => this.#scenario()),
      this.#download("results", "Results", "The figures of this instant as JSON, as tidegate simulate --json prints them.", () => this.#results()),
    );
    byId("share").append(link, range, cards);
    simulation.on("loaded", () => this.#refresh());
    simulation.on("phase", (phase) => phase !== "playing" && this.#refresh());
    simulation.on("frame", ({ playing }) => !playing && this.#refresh());
    simulation.on("changed", () => this.#refresh());
    simulation.on("speed", () => this.#refresh());
  }

  /** The view has been put in front, or what it shows has changed. */
  show() {
    this.#refresh();
  }

  #refresh() {
    if (byId("share").hidden || !this.#simulation.base) return;
    this.#sideField.hidden = this.#simulation.mode === "one";
    say(this.#upTo, span(this.#simulation.at));
    this.#asked += 1;
    const asked = this.#asked;
    this.#link.dataset.fresh = "false";
    void this.#address().then((address) => {
      if (asked !== this.#asked) return;
      this.#link.dataset.fresh = "true";
      // A link that says the same is not written anew: a person may have selected it.
      if (this.#link.value === address) return;
      this.#link.value = address;
      say(this.#copied, address.length > LONG_LINK ? "This link is long: the scenario has been edited. Some programs cut such links off; the TOML is safer." : "");
    });
  }

  async #address() {
    const address = new URL(location.href);
    address.hash = await write(this.#view(), this.#simulation.currentSetUp());
    return address.href;
  }

  async #copy() {
    this.#link.value = await this.#address();
    try {
      await navigator.clipboard.writeText(this.#link.value);
      say(this.#copied, "Copied.");
    } catch {
      this.#link.select();
      say(this.#copied, "The browser does not let this page copy: the link is selected, copy it by hand.");
    }
  }

  #download(id: string, title: string, text: string, produce: () => Promise<Download>) {
    const button = make("button", { type: "button", id: `download-${id}` }, "Download");
    const state = make("p", { class: "remark", role: "status" });
    button.addEventListener("click", async () => {
      button.disabled = true;
      this.#progress = (share) => say(state, `Being made: ${percent(share, 1)}`);
      try {
        const { name, parts, type, about } = await produce();
        save(name, parts, type);
        say(state, `${name} has been made.${about ? ` ${about}` : ""}`);
      } catch (error) {
        say(state, `It could not be made: ${messageOf(error).replace(/\.$/, "")}.`);
      } finally {
        button.disabled = false;
      }
    });
    return card(id, title, text, make("div", { class: "row" }, button, state));
  }

  #progress: (share: number) => void = () => {};

  #chosen() {
    const side = (this.#simulation.mode === "two" ? Number(this.#side.value) : 0) as Side;
    return { side, scenario: this.#simulation.runs[side]?.name ?? "scenario" };
  }

  async #export(what: "trace" | "decisions"): Promise<Download> {
    const { side, scenario } = this.#chosen();
    const progress = this.#progress;
    const parts: string[] = [];
    const whole = this.#whole.checked;
    const take = Comlink.proxy(async (text: string, share: number) => {
      parts.push(text);
      progress(share);
    });
    await this.#simulation.runner.ask((worker, run) => worker.export(run, side, what, whole, take));
    if (what === "trace") return { name: `${scenario}-trace.json`, parts, type: "application/json" };
    return { name: `${scenario}-decisions.jsonl`, parts, type: "application/jsonl", about: `tidegate replay prints: decision digest ${digestOf(parts)}` };
  }

  async #scenario() {
    const { side, scenario: name } = this.#chosen();
    const { scenario } = await this.#simulation.runner.ask((worker, run) => worker.snapshot(run, side));
    return { name: `${name}.toml`, parts: [await this.#simulation.runner.ask((worker) => worker.writeScenario(scenario))], type: "application/toml" };
  }

  async #results() {
    const { side, scenario } = this.#chosen();
    return { name: `${scenario}-results.json`, parts: [await this.#simulation.runner.ask((worker, run) => worker.results(run, side))], type: "application/json" };
  }
}

/** The digest of a decision log, from its last line: that is far shorter than a part, of which only the last may be short. */
function digestOf(parts: string[]) {
  const { end } = JSON.parse(parts.slice(-2).join("").trimEnd().split("\n").at(-1) ?? "") as { end: { run: string; requests: string } };
  return `${end.run} ${end.requests}`;
}

function card(id: string, title: string, text: string, ...children: HTMLElement[]) {
  return make("section", { class: "panel card", "aria-label": title, "data-card": id }, make("h2", {}, title), make("p", { class: "lead" }, text), ...children);
}

function save(name: string, parts: string[], type: string) {
  const address = URL.createObjectURL(new Blob(parts, { type }));
  const anchor = make("a", { href: address, download: name });
  anchor.click();
  // The browser has taken it up by then.
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
