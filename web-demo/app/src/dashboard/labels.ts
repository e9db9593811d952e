// Counts and live changes in few words.
import { count, span } from "../format.ts";
import type { Intervention } from "../pkg/tidegate_playground.js";

/** A live change as a label on a chart. */
export function changeLabel(what: Intervention): string {
  switch (what.set) {
    case "capacity":
      return what.slots === undefined || what.slots === "schedule" ? "as scheduled" : `can take ${count(what.slots)}`;
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

/** What the page calls a resource: the core's `submission` are the workers. */
export function resourceLabel(name: string) {
  return name === "submission" ? "workers" : name;
}

/** A count in five characters or less. */
export function brief(value: number) {
  if (value < 10_000) return count(value);
  return value < 999_950 ? `${Number((value / 1e3).toFixed(value < 99_950 ? 1 : 0))}k` : `${Number((value / 1e6).toFixed(1))}M`;
}

/** Where parts of these sizes end that lie one after the other, as shares of the whole. */
export function stacked(sizes: readonly number[], whole: number) {
  let end = 0;
  return sizes.map((size) => (end += size / whole));
}
