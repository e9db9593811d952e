// The three runs of the first screen: the same work for the same provider, with three ways to limit the calls
// in flight.
import type { LimitChoice, Scenario } from "../pkg/tidegate_playground.js";

/** The name of the only provider. */
export const PROVIDER = "provider";
/** How many calls the provider serves at once, to begin with and at most. */
export const CAPACITY = 12;
export const MOST_CAPACITY = 32;
/** How many requests there are to answer. */
export const REQUESTS = 400;
/** How many requests a client has in work at once: those that are drawn. */
export const IN_WORK = 40;
/** The limit that the fixed client was given, and that the others start below. */
const CAP = 32;

export interface Contender {
  name: string;
  /** What it does, in a few words. */
  about: string;
  algorithm: LimitChoice;
  /** The custom property of its colour. */
  colour: string;
}

export const CONTENDERS: readonly Contender[] = [
  { name: "Fixed cap", about: `its limit is always ${CAP}`, algorithm: { name: "fixed", limit: CAP }, colour: "--fixed" },
  { name: "AIMD", about: "limit falls on a 429, rises slowly", algorithm: { name: "aimd" }, colour: "--aimd" },
  { name: "tide", about: "tidegate's default: learns the capacity", algorithm: { name: "tide" }, colour: "--tide" },
];

/** The scenario of one contender. */
export const scenarioOf = ({ name, algorithm }: Contender): Scenario => ({
  name,
  title: name,
  description: "",
  rows: REQUESTS,
  row_group_size: REQUESTS,
  row_groups: 1,
  submission_limit: IN_WORK,
  // Each request in work keeps its worker slot, so that all of them are among the slots that can be drawn.
  yields: false,
  columns: [
    { name: "row", strategy: "from_scratch" },
    { name: "answer", strategy: "cell", after: ["row"], model: PROVIDER },
  ],
  models: [
    {
      name: PROVIDER,
      max_parallel: CAP,
      task_limit: IN_WORK,
      algorithm,
      provider: {
        capacity: { shape: "constant", slots: CAPACITY },
        latency: { law: "log_normal", median_ms: 600, sigma: 0.25 },
        overload: { response: "refuse", retry_after_ms: 500 },
      },
    },
  ],
});
