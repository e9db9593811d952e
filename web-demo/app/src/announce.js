// @ts-check
// Tells people who do not see the page what matters, as it happens: never once per frame.
import { byId } from "./dom.js";
import { count, span } from "./format.js";

/** @typedef {import("./session.js").Session} Session */

/** Between two announcements of 429 answers, in real ms. */
const PAUSE_MS = 8_000;

/** Says something politely. @param {string} text */
export function announce(text) {
  byId("announcer").textContent = text;
}

/** @param {Session} session */
export function announceEvents(session) {
  let refused = 0;
  let saidAt = -Infinity;
  session.on("loaded", () => (refused = 0));
  session.on("frame", (frame) => {
    const now = performance.now();
    const latest = frame.sides.reduce((sum, { sample }) => sum + sample.providers.reduce((some, one) => some + one.refused, 0), 0);
    if (latest > refused && frame.playing && now - saidAt > PAUSE_MS) {
      saidAt = now;
      announce(`Providers push back: ${count(latest)} answers of 429 so far, at ${span(session.at)}.`);
    }
    refused = latest;
  });
  session.on("branched", (at) => announce(`A new branch begins at ${span(at)}.`));
  session.on("changed", ({ what }) => {
    const words = inWords(what);
    if (words) announce(words);
  });
  session.on("phase", (phase) => {
    if (phase === "finished") announce(`The run has ended after ${span(session.at)} of virtual time.`);
  });
}

/** @param {import("./pkg/tidegate_playground.js").Intervention} what */
function inWords(what) {
  switch (what.set) {
    case "capacity":
      return what.slots === "schedule" ? `${what.model} has its own capacity again.` : "";
    case "refuse":
      return `${what.model} refuses every call for ${span(what.for_ms)}.`;
    case "slow":
      return `${what.model} takes ${what.factor} times as long for ${span(what.for_ms)}.`;
    default:
      return "";
  }
}
