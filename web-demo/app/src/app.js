// @ts-check
// The page: puts the views together. It decides nothing about scheduling and keeps no figures of its own.
import { announce, announceEvents } from "./announce.js";
import { sameAsScenario } from "./compare/sides.js";
import { buttonById, byId, say, wordsOf } from "./dom.js";
import { fetched, NotLoaded } from "./fetching.js";
import { count, span } from "./format.js";
import { Hands } from "./hands/hands.js";
import { lateViews } from "./late-views.js";
import { workOffline } from "./offline.js";
import { Picker } from "./picker.js";
import { Session } from "./session.js";
import { Stages } from "./stage-view.js";
import { addressed, Tabs } from "./tabs.js";
import { Transport } from "./transport.js";
import { WhyPanel } from "./why.js";

/** @typedef {import("./messages").Frame} Frame */
/** @typedef {import("./tabs.js").View} View */

const session = new Session();
/** The last view that shows a run: where a link leads to. @type {View} */
let runView = "stage";
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
const begun = session.begin();
const late = lateViews({ session, tabs, runView: () => runView }, begun);

/** @param {View} view */
function show(view) {
  if (view === "stage" || view === "compare") {
    runView = view;
    void session.setMode(view === "stage" ? "one" : "two");
  }
  if (view !== "stage") void late[view].show();
  document.title = view === "stage" ? "tidegate playground" : `${byId(`tab-${view}`).textContent} · tidegate playground`;
}

/** What shows when the address asks for nothing that can be. */
async function showUsual() {
  const scenario = session.scenarios[0]?.name ?? "";
  await session.setUp({ scenario, seed: 1, mode: session.mode, choices: [sameAsScenario(), sameAsScenario()], changes: undefined, at: 0, speed: 0.3 });
  if (tabs.view === "compare") await session.setMode("two");
}

/** Brings about what the address asks for. */
async function followAddress() {
  const { view, payload } = addressed(location.hash);
  /** @type {unknown} */
  let refusal;
  try {
    if (payload) {
      // Most who come have no link.
      const { read } = /** @type {typeof import("./take/link.js")} */ (await fetched("The link", "take/link.js"));
      await session.setUp(await read(payload));
      history.replaceState(null, "", `#/${view ?? "stage"}`);
    }
    if (view || payload) tabs.show(view ?? "stage");
  } catch (error) {
    refusal = error;
  }
  const isFirst = !session.base;
  if (isFirst) await showUsual();
  if (!refusal) return;
  const reason = wordsOf(refusal).replace(/\.$/, "");
  session.refuse(new Error(`${reason}. ${isFirst ? "The usual scenario is shown instead." : "The page stays as it was."}`));
  // A link that could not be followed for want of a file is as good as before: loading the page again follows it.
  if (!(refusal instanceof NotLoaded)) history.replaceState(null, "", `#/${tabs.view}`);
}

/** @param {Frame} frame */
function showResult(frame) {
  const panel = byId("finish");
  const results = frame.sides.map(({ result }) => result);
  const [result] = results;
  const isShown = frame.sides.length === 1 && result !== undefined;
  panel.hidden = !isShown;
  if (!isShown || panel.dataset.digest === result.digest) return;
  const sample = /** @type {Frame["sides"][number]} */ (frame.sides[0]).sample;
  const { reason } = result.report.stop;
  const refused = sample.providers.reduce((sum, provider) => sum + provider.refused, 0);
  say(byId("finish-title"), reason === "completed" ? "Run finished" : `Run stopped: ${result.explanation}`);
  say(
    byId("finish-text"),
    `${count(sample.rows_done)} of ${count(sample.rows_total)} rows in ${span(sample.at / 1e6)} of virtual time; ` +
      `${count(sample.rows_dropped)} dropped. Providers pushed back (429) ${count(refused)} times.`,
  );
  say(byId("digest"), result.digest);
  panel.dataset.stop = reason;
  panel.dataset.digest = result.digest;
}

/** @param {string | undefined} name */
const titleOf = (name) => session.scenarios.find((one) => one.name === name)?.title;

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

try {
  await begun;
  await followAddress();
  picker.offer(session.scenarios);
  addEventListener("hashchange", () => void followAddress());
  void workOffline((text) => {
    say(byId("offline"), text);
    announce(text);
  });
} catch (error) {
  // That the worker failed has been told.
  if (session.phase !== "failed") throw error;
}
