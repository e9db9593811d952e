// @ts-check
// Live changes in words.
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
