/** A scenario that comes with the package. */
export interface ScenarioInfo {
  /** Which suite it belongs to. */
  suite: string;
  /** What a run is started with. */
  name: string;
  title: string;
  description: string;
}

/** The scenarios of all suites, in the order in which they should be offered. */
export const SCENARIOS: readonly Readonly<ScenarioInfo>[];

/** The first of them as JSON, for whoever begins with it and loads the others later. */
export const FIRST: string;

/** What to throw where no scenario has this name. */
export function unknown(name: string): Error;
