// The figures that two runs are compared by, and the sentence that says which run is better.
import { count, mean, span } from "../format.ts";
import { usedShare, usedWords } from "../utilisation.ts";
import type { Picture } from "../messages.ts";
import type { Scenario, TelemetryField } from "../pkg/tidegate_playground.js";

/** Times closer than this share count as equal. */
const SAME = 0.02;
/** Waits further apart than this factor decide, where times are equal. */
const WAITS = 1.5;

export interface Figures {
  /** Virtual ms so far, or to the end. */
  time: number;
  finished: boolean;
  /** Rows done. */
  rows: number;
  /** Answers 429. */
  refused: number;
  /** Rows done in a virtual second. */
  goodput: number;
  /** The share of what the providers could serve that calls used, 0 to 1; NaN as `usedShare` says. */
  used: number;
  /** Slots that admission allowed and that stayed empty while a call waited, in virtual slot-ms. */
  starved: number;
  /** Rows dropped. */
  dropped: number;
  /**
   * How long tasks that build on others waited from being ready to their start, the mean in virtual ms; NaN
   * while it is not known.
   */
  wait: number;
}

/** The figures of a picture. `fields` and `stride`: how its telemetry is laid out. `scenario`: what was run. */
export function figuresOf({ sample, result, telemetry, buckets }: Picture, scenario: Scenario | undefined, fields: readonly TelemetryField[], stride: number): Figures {
  const numbers = new Float64Array(telemetry);
  const columnAt = (index: number) => numbers.subarray(index * stride, index * stride + buckets);
  const column = (field: TelemetryField, provider: number) => columnAt(1 + provider * fields.length + fields.indexOf(field));
  // Where each bucket begins, and for the last one, which is open, the present.
  const times = columnAt(0);
  const time = sample.at / 1e6;
  const sum = (of: (one: typeof sample.providers[number]) => number) => sample.providers.reduce((all, one) => all + of(one), 0);
  return {
    time,
    finished: result !== undefined,
    rows: sample.rows_done,
    refused: sum((one) => one.refused),
    goodput: time > 0 ? sample.rows_done / (time / 1000) : 0,
    used: usedShare(sample.providers.map(({ accepted }, provider) => ({ inService: column("inService", provider), capacity: column("capacity", provider), accepted, limits: scenario?.models?.[provider]?.provider })), times),
    starved: sum((one) => one.idle.starved_slot_ns) / 1e6,
    dropped: sample.rows_dropped,
    wait: Number.NaN,
  };
}

const fine = (value: number) => mean(value);

/** The rows of the table: what, how it reads, and whether more or less of it is better. */
export const ROWS = [
  { field: "time", label: "Time to finish (virtual)", words: span, better: -1 },
  { field: "rows", label: "Rows done", words: count, better: 1 },
  { field: "goodput", label: "Rows done a second", words: fine, better: 1 },
  { field: "refused", label: "429s", words: count, better: -1 },
  { field: "used", label: "Provider capacity used", words: usedWords, better: 1 },
  { field: "wait", label: "Wait of a ready task, mean", words: span, better: -1 },
  { field: "starved", label: "Free slot time while calls wait", words: span, better: -1 },
  { field: "dropped", label: "Rows dropped", words: count, better: -1 },
] as const;

/** The size of a difference in words. Shares differ by percentage points. */
export function sizeOf(row: typeof ROWS[number], difference: number) {
  const size = Math.abs(difference);
  return row.field === "used" ? `${(100 * size).toFixed(1)} points` : row.words(size);
}

/** Which side has the better of a figure: 0 left, 1 right, undefined neither. */
export function betterOf(row: typeof ROWS[number], left: Figures, right: Figures) {
  // Two runs that still go on are at the same instant; only ends can be compared.
  if (row.field === "time" && !(left.finished && right.finished)) return undefined;
  const [one, other] = [left[row.field], right[row.field]];
  if (Number.isNaN(one) || Number.isNaN(other)) return undefined;
  if (Math.abs(one - other) <= 0.001 * Math.max(Math.abs(one), Math.abs(other))) return undefined;
  return (other > one) === (row.better > 0) ? 1 : 0;
}

/** Which is better, in words. */
export function verdict(left: Figures, right: Figures) {
  if (left.time === 0 && right.time === 0) return "Press Play: both sides run on the same seed, at the same time.";
  const sides = ["The left", "the right"] as const;
  const name = (side: 0 | 1) => (side === 0 ? "Left" : "Right");
  const refusals = differenceIn(right.refused - left.refused, "429", "429s");
  const besides = refusals ? `; ${right.refused > left.refused ? "right" : "left"} meets ${refusals}` : left.refused > 0 ? ", with as many 429s" : ", neither is refused a call";
  if (left.finished && right.finished) {
    if (left.dropped !== right.dropped) {
      const better = left.dropped < right.dropped ? 0 : 1;
      const lost = Math.abs(left.dropped - right.dropped);
      return `${name(better)} is better: ${name(better === 0 ? 1 : 0).toLowerCase()} loses ${count(lost)} more ${lost === 1 ? "row" : "rows"}${besides}.`;
    }
    const ratio = Math.max(left.time, right.time) / Math.max(Math.min(left.time, right.time), 1e-6);
    if (ratio < 1 + SAME) return amongEqualTimes(left, right, refusals);
    const better = left.time < right.time ? 0 : 1;
    return `${name(better)} is better: it finishes ${span(Math.abs(left.time - right.time))} earlier, ${ratio.toFixed(2)} times as fast${besides}.`;
  }
  if (left.finished !== right.finished) {
    const first = left.finished ? 0 : 1;
    return `${name(first)} has finished; ${sides[first === 0 ? 1 : 0].toLowerCase()} is still running${besides}.`;
  }
  if (left.rows === right.rows) return `So far both have done as many rows${besides}.`;
  const ahead = left.rows > right.rows ? 0 : 1;
  return `So far ${name(ahead).toLowerCase()} is ahead by ${count(Math.abs(left.rows - right.rows))} rows${besides}.`;
}

/** Which of two runs is better that take about as long. */
function amongEqualTimes(left: Figures, right: Figures, refusals: string) {
  if (refusals) {
    const better = left.refused < right.refused ? "Left" : "Right";
    return `${better} is better: both take about as long, and ${better === "Left" ? "right" : "left"} meets ${refusals}.`;
  }
  if (!(Math.max(left.wait, right.wait) > WAITS * Math.min(left.wait, right.wait))) return "Neither is better.";
  const [better, sooner, later] = left.wait < right.wait ? (["Left", left, right] as const) : (["Right", right, left] as const);
  return `${better} is better: both take about as long, and there a ready task waits ${span(sooner.wait)} instead of ${span(later.wait)} for its turn.`;
}

/** How many more, of either side. */
function differenceIn(difference: number, one: string, many: string) {
  const size = Math.abs(difference);
  return size === 0 ? "" : `${count(size)} more ${size === 1 ? one : many}`;
}
