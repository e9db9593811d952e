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

/** What the first of them is made of, for whoever begins with it and loads the others later. */
export const FIRST: string;

/**
 * The scenario of this name, without the fields that have their defaults. Throws an `Error` that lists the names if there is
 * no such scenario.
 *
 * @param text what it is made of
 */
export function scenarioOf(name: string, text: string | undefined): Omit<ScenarioInfo, "suite">;
