// Tells people who do not see the page what matters, as it happens: never once per frame.
import { byId } from "./dom.ts";
import { count, span } from "./format.ts";
import type { Simulation } from "./simulation.ts";

/** Between two announcements of 429s, in real ms. */
const PAUSE_MS = 8_000;

/** Says something politely. */
export function announce(text: string) {
  byId("announcer").textContent = text;
}

export function announceEvents(simulation: Simulation) {
  let refused = 0;
  let saidAt = -Infinity;
  simulation.on("loaded", () => (refused = 0));
  simulation.on("frame", (frame) => {
    const now = performance.now();
    const latest = frame.sides.reduce((sum, { sample }) => sum + sample.providers.reduce((some, one) => some + one.refused, 0), 0);
    if (latest > refused && frame.playing && now - saidAt > PAUSE_MS) {
      saidAt = now;
      announce(`Providers push back: ${count(latest)} 429s so far, at ${span(simulation.at)}.`);
    }
    refused = latest;
  });
  simulation.on("branched", (at) => announce(`A new branch begins at ${span(at)}.`));
  simulation.on("changed", ({ what }) => {
    const words = inWords(what);
    if (words) announce(words);
  });
  simulation.on("phase", (phase) => {
    if (phase === "finished") announce(`The run has ended after ${span(simulation.at)} of virtual time.`);
  });
}

function inWords(what: import("./pkg/tidegate_playground.js").Intervention) {
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
