// @ts-check
// Counts and live changes in few words.
import { count, span } from "../format.js";

/** @typedef {import("../pkg/tidegate_playground.js").Intervention} Intervention */

/** A live change as a label on a chart. @param {Intervention} what @returns {string} */
export function changeLabel(what) {
  switch (what.set) {
    case "capacity":
      return what.slots === undefined || what.slots === "schedule" ? "as scheduled" : `capacity ${count(what.slots)}`;
    case "refuse":
      return what.for_ms > 0 ? `429s for ${span(what.for_ms)}` : "429s over";
    case "slow":
      return what.for_ms > 0 ? `${what.factor}× slower for ${span(what.for_ms)}` : "slow patch over";
    case "max_parallel":
      return `cap ${count(what.calls)}`;
    case "weight":
      return `${what.column}: weight ${what.weight}`;
    case "policy":
      return "policy changed";
    case "algorithm":
      return "algorithm changed";
    case "request":
      return "AIMD changed";
  }
}

/** A count in five characters or less. @param {number} value */
export function brief(value) {
  if (value < 10_000) return count(value);
  return value < 999_950 ? `${Number((value / 1e3).toFixed(value < 99_950 ? 1 : 0))}k` : `${Number((value / 1e6).toFixed(1))}M`;
}
