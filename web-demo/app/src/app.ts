// The page: puts the views together. It decides nothing about scheduling and keeps no figures of its own.
import "./style.css";
import "./views.css";
import "./why.css";
import "./stage.css";
import "./tides.css";
import "./graph.css";
import "./compare/compare.css";
import "./scenario/scenario.css";
import "./tour/tour.css";
import "./take/take.css";
import { announce, announceEvents } from "./announce.ts";
import { Compare } from "./compare/compare.ts";
import { sameAsScenario } from "./compare/sides.ts";
import { buttonById, byId, say, wordsOf } from "./dom.ts";
import { NotLoaded } from "./fetching.ts";
import { count, span } from "./format.ts";
import { Hands } from "./hands/hands.ts";
import { workOffline } from "./offline.ts";
import { Picker } from "./picker.ts";
import { ScenarioView } from "./scenario/scenario.ts";
import { Session } from "./session.ts";
import { Stages } from "./stage-view.ts";
import { addressed, Tabs } from "./tabs.ts";
import { read } from "./take/link.ts";
import { TakeAway } from "./take/take.ts";
import { Tour } from "./tour/tour.ts";
import { Transport } from "./transport.ts";
import { WhyPanel } from "./why.ts";
import { openWatch } from "./watch/screen.svelte.ts";
import type { Frame } from "./messages.ts";
import type { View } from "./tabs.ts";

const session = new Session();
/** The last view that shows a run: where a link leads to. */
let runView: "stage" | "compare" = "stage";
const why = new WhyPanel(session);
const picker = new Picker(byId("picker"), "Scenario", (name) => void session.pick(name));
// These hear of a run before the stages do: a value that is written into a control lays the page out, as it is then.
const transport = new Transport(session);
session.on("coming", (name) => {
  const text = name === undefined ? (session.base?.description ?? "") : `${titleOf(name)} is being loaded.`;
  say(byId("description"), text);
  if (name !== undefined) announce(text);
});
session.on("loaded", () => {
  byId("finish").hidden = true;
  delete byId("finish").dataset.digest;
  byId("failure").hidden = byId("notice").hidden = true;
  showScenario();
});
new Stages(session, why);
new Hands(session);
const tabs = new Tabs(show);
new Compare(session);
new Tour(session, tabs);
const scenarioView = new ScenarioView(session);
const takeAway = new TakeAway(session, () => runView);

const watch = openWatch(byId("watch"), { explore: () => tabs.go("stage"), learn: () => tabs.go("tour") });

/** Starts the scheduler behind the other views, once: the first screen has its own. */
let begun: Promise<void> | undefined;
const begin = () => (begun ??= session.begin().then(() => picker.offer(session.scenarios)));

function show(view: View) {
  watch.shown = view === "watch";
  if (view !== "watch" && !begun) void begin().then(showUsual).catch(unlessTold);
  if (view === "stage" || view === "compare") {
    runView = view;
    void session.setMode(view === "stage" ? "one" : "two");
  }
  if (view === "scenario") scenarioView.show();
  if (view === "take") takeAway.show();
  document.title = view === "watch" ? "tidegate playground" : `${byId(`tab-${view}`).textContent} · tidegate playground`;
}

/** What shows when the address asks for nothing that can be. */
async function showUsual() {
  const scenario = session.scenarios[0]?.name ?? "";
  await session.setUp({ scenario, seed: 1, mode: session.mode, choices: [sameAsScenario(), sameAsScenario()], changes: undefined, at: 0, speed: 0.3 });
  if (tabs.view === "compare") await session.setMode("two");
}

/** That the worker failed has been shown. */
function unlessTold(error: unknown) {
  if (session.phase !== "failed") throw error;
}

/** Brings about what the address asks for. */
async function followAddress() {
  const { payload, view = payload ? "stage" : "watch" } = addressed(location.hash);
  if (view === "watch" && !payload) {
    tabs.show(view);
    watch.shown = true;
    return;
  }
  await begin();
  let refusal: unknown;
  try {
    if (payload) {
      await session.setUp(await read(payload));
      history.replaceState(null, "", `#/${view}`);
    }
    tabs.show(view);
  } catch (error) {
    refusal = error;
  }
  const isFirst = !session.base;
  if (isFirst) {
    tabs.show(view);
    await showUsual();
  }
  if (!refusal) return;
  const reason = wordsOf(refusal).replace(/\.$/, "");
  session.refuse(new Error(`${reason}. ${isFirst ? "The usual scenario is shown instead." : "The page stays as it was."}`));
  // A link that could not be followed for want of a file is as good as before: loading the page again follows it.
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
  panel.dataset.stop = reason;
  panel.dataset.digest = result.digest;
}

const titleOf = (name: string | undefined) => session.scenarios.find((one) => one.name === name)?.title;

/** Says which scenario there is. */
function showScenario() {
  const title = session.base?.title || session.base?.name || "";
  picker.show(session.name, titleOf(session.name) ?? `${title} (edited)`);
  say(byId("description"), session.base?.description ?? "");
}

session.on("frame", showResult);
session.on("failed", (message) => {
  say(byId("failure-text"), `${message}.`);
  byId("failure").hidden = false;
});
session.on("refused", (message) => {
  if (session.base) showScenario();
  say(byId("notice-text"), message);
  byId("notice").hidden = false;
});
buttonById("notice-close").addEventListener("click", () => {
  byId("notice").hidden = true;
  buttonById("play").focus();
});
buttonById("failure-again").addEventListener("click", () => location.reload());
buttonById("start-tour").addEventListener("click", () => tabs.show("tour"));
buttonById("again").addEventListener("click", () => transport.toggle());
announceEvents(session);

addEventListener("hashchange", () => void followAddress().catch(unlessTold));
followAddress().catch(unlessTold);
void workOffline((text) => {
  say(byId("offline"), text);
  announce(text);
});
