// The page: puts the views together. It decides nothing about scheduling and keeps no figures of its own.
import "./style.css";
import "./views.css";
import "./dashboard.css";
import "./providers.css";
import "./graph.css";
import "./compare/compare.css";
import "./lessons/lessons.css";
import { mount } from "svelte";
import { announce, announceEvents } from "./announce.ts";
import { openCompare } from "./compare/compare.svelte.ts";
import { usualSides } from "./compare/sides.ts";
import { buttonById, byId, say, messageOf } from "./dom.ts";
import { fetched, NotLoaded } from "./fetching.ts";
import { count, span } from "./format.ts";
import Controls from "./controls/Controls.svelte";
import { workOffline } from "./offline.ts";
import { openPicker, openScenario } from "./scenario/scenario.svelte.ts";
import { Simulation } from "./simulation.ts";
import { Dashboards } from "./dashboards.ts";
import { addressed, Tabs } from "./tabs.ts";
import { read } from "./share/link.ts";
import { openShare } from "./share/share.svelte.ts";
import { Transport } from "./transport.ts";
import { Explain } from "./explain/explain.svelte.ts";
import { openWatch } from "./watch/screen.svelte.ts";
import type { Machines } from "./machines/machines.svelte.ts";
import type { Frame } from "./messages.ts";
import type { View } from "./tabs.ts";

const simulation = new Simulation();
const explain = new Explain(simulation);
const picker = openPicker((name) => {
  showPicked(name, titleOf(name) ?? name);
  void simulation.pick(name);
});
// These get the events of a run before the dashboards do: writing a value into a control lays out the page as
// it is then.
const transport = new Transport(simulation);
simulation.on("coming", (name) => {
  const text = name === undefined ? (simulation.base?.description ?? "") : `${titleOf(name)} is being loaded.`;
  say(byId("description"), text);
  if (name !== undefined) announce(text);
});
simulation.on("loaded", () => {
  byId("finish").hidden = true;
  delete byId("finish").dataset.digest;
  byId("failure").hidden = byId("notice").hidden = true;
  showScenario();
});
new Dashboards(simulation, explain);
mount(Controls, { target: byId("live-controls"), props: { simulation } });
const tabs = new Tabs(show);
openCompare(simulation);
const scenarioForm = openScenario(simulation);
const share = openShare(simulation);

const watch = openWatch(byId("watch"), { explore: () => tabs.go("explore"), learn: () => tabs.go("lessons") });

/** Starts the scheduler behind the other views, once: the first screen has its own. */
let begun: Promise<void> | undefined;
const begin = () => (begun ??= simulation.begin().then(() => void (picker.scenarios = simulation.scenarios)));

/** Opens the machines that share a limit once they are wanted: they have the scheduler on the page itself. */
let machines: Promise<Machines> | undefined;
function openMachines() {
  machines ??= fetched("The machines", () => import("./machines/machines.svelte.ts")).then((module) => module.openMachines(byId("machines")));
  machines.catch((error: unknown) => {
    machines = undefined;
    simulation.refuse(error);
  });
  return machines;
}

/** Opens the lessons once they are wanted: their words are more than the first screen has. */
let lessons: Promise<unknown> | undefined;
function openLessons() {
  lessons ??= fetched("The lessons", () => import("./lessons/guide.svelte.ts")).then(({ Guide }) => new Guide(simulation, tabs, explain, openMachines));
  lessons.catch((error: unknown) => {
    lessons = undefined;
    simulation.refuse(error);
  });
}

function show(view: View) {
  watch.shown = view === "watch";
  if (view !== "watch" && view !== "machines" && !begun) void begin().then(showUsual).catch(unlessShown);
  if (view === "explore" || view === "compare") {
    share.view = view;
    void simulation.setMode(view === "explore" ? "one" : "two");
  }
  scenarioForm.shown = view === "scenario";
  if (view === "lessons") openLessons();
  if (view === "machines") {
    // Its controls are out of sight.
    simulation.pause();
    void openMachines();
  }
  void machines?.then((one) => (one.shown = tabs.view === "machines"));
  share.shown = view === "share";
  document.title = view === "watch" ? "tidegate playground" : `${byId(`tab-${view}`).textContent} · tidegate playground`;
}

/** What shows when the address asks for nothing that can be. */
async function showUsual() {
  const scenario = simulation.scenarios[0]?.name ?? "";
  await simulation.setUp({ scenario, seed: 1, mode: simulation.mode, choices: usualSides(), changes: undefined, at: 0, speed: 0.3 });
  if (tabs.view === "compare") await simulation.setMode("two");
}

/** That the worker failed has been shown. */
function unlessShown(error: unknown) {
  if (simulation.phase !== "failed") throw error;
}

/** Brings about what the address asks for. */
async function followAddress() {
  const { payload, view = payload ? "explore" : "watch" } = addressed(location.hash);
  if (!payload) {
    // At once: the view says what is being loaded.
    if (view === "watch") watch.shown = true;
    tabs.show(view);
    return;
  }
  await begin();
  let refusal: unknown;
  try {
    await simulation.setUp(await read(payload));
    history.replaceState(null, "", `#/${view}`);
    tabs.show(view);
  } catch (error) {
    refusal = error;
  }
  const isFirst = !simulation.base;
  if (isFirst) {
    tabs.show(view);
    await showUsual();
  }
  if (!refusal) return;
  const reason = messageOf(refusal).replace(/\.$/, "");
  simulation.refuse(new Error(`${reason}. ${isFirst ? "The usual scenario is shown instead." : "The page stays as it was."}`));
  // A link that could not be followed for want of a file is as good as before: loading the page again follows
  // it.
  if (!(refusal instanceof NotLoaded)) history.replaceState(null, "", `#/${tabs.view}`);
}

function showResult(frame: Frame) {
  const panel = byId("finish");
  const results = frame.sides.map(({ result }) => result);
  const [result] = results;
  const isShown = frame.sides.length === 1 && result !== undefined;
  panel.hidden = !isShown;
  if (!isShown || panel.dataset.digest === result.digest) return;
  const sample = (frame.sides[0] as Frame["sides"][number]).sample;
  const { reason } = result.report.stop;
  const refused = sample.providers.reduce((sum, provider) => sum + provider.refused, 0);
  say(byId("finish-title"), reason === "completed" ? "Run finished" : `Run stopped: ${result.explanation}`);
  say(
    byId("finish-text"),
    `${count(sample.rows_done)} of ${count(sample.rows_total)} rows in ${span(sample.at / 1e6)} of virtual time; ` +
      `${count(sample.rows_dropped)} dropped, ${count(refused)} 429s.`,
  );
  say(byId("digest"), result.digest);
  const { scenario, seed, changes } = simulation.currentSetUp();
  // Without a name, the file is the one under Share and export.
  say(byId("digest-command"), `tidegate simulate ${typeof scenario === "string" && !changes ? scenario : "FILE"} --seed ${seed}`);
  panel.dataset.stop = reason;
  panel.dataset.digest = result.digest;
}

const titleOf = (name: string | undefined) => simulation.scenarios.find((one) => one.name === name)?.title;

function showPicked(name: string | undefined, title: string) {
  picker.chosen = name;
  picker.title = title;
}

/** Says which scenario there is. */
function showScenario() {
  const title = simulation.base?.title || simulation.base?.name || "";
  showPicked(simulation.name, titleOf(simulation.name) ?? `${title} (edited)`);
  say(byId("description"), simulation.base?.description ?? "");
}

simulation.on("frame", showResult);
simulation.on("failed", (message) => {
  say(byId("failure-text"), `${message}.`);
  byId("failure").hidden = false;
});
simulation.on("refused", (message) => {
  if (simulation.base) showScenario();
  say(byId("notice-text"), message);
  byId("notice").hidden = false;
});
buttonById("notice-close").addEventListener("click", () => {
  byId("notice").hidden = true;
  buttonById("play").focus();
});
buttonById("failure-again").addEventListener("click", () => location.reload());
buttonById("start-lessons").addEventListener("click", () => tabs.show("lessons"));
buttonById("again").addEventListener("click", () => transport.toggle());
announceEvents(simulation);

addEventListener("hashchange", () => void followAddress().catch(unlessShown));
followAddress().catch(unlessShown);
void workOffline((text) => {
  say(byId("offline"), text);
  announce(text);
});
