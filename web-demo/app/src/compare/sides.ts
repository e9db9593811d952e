// What the two sides of a comparison change in the scenario they start from.
import type { LimitChoice, PolicyChoice, Scenario } from "../pkg/tidegate_playground.js";

/** One side. Empty text means: as the scenario has it. */
export interface Choice {
  /** The name of another scenario. */
  scenario: string;
  /** Of every provider. */
  algorithm: "" | "aimd" | "tide" | "vegas" | "fixed";
  /** The limit, if it is fixed. */
  fixed: number;
  policy: "" | "strict_fair" | "bounded_borrow";
  /** Of every provider, in virtual ms. */
  ramp: "" | number;
  advisory: "" | "yes" | "no";
  yields: "" | "yes" | "no";
}

/** A side that changes only this. */
export const complete = (choice: Partial<Choice>): Choice => ({ ...sameAsScenario(), ...choice });

/** A side that changes nothing. */
export function sameAsScenario(): Choice {
  return { scenario: "", algorithm: "", fixed: 8, policy: "", ramp: "", advisory: "", yields: "" };
}

/** The sides that a comparison begins with: two limit algorithms on the same scenario. */
export const usualSides = (): [Choice, Choice] => [complete({ algorithm: "aimd" }), complete({ algorithm: "tide" })];

/** The limit algorithm of that name, as a setting. */
export function limitChoice(name: Exclude<Choice["algorithm"], "">, fixed: number): LimitChoice {
  return name === "fixed" ? { name, limit: fixed } : { name };
}

export function policyChoice(name: Exclude<Choice["policy"], "">): PolicyChoice {
  return name === "strict_fair" ? name : { bounded_borrow: {} };
}

const ALGORITHMS = { aimd: "AIMD", tide: "Tide", vegas: "Vegas", fixed: "a fixed limit" };

/**
 * A side in a few words.
 * @param titleOf the title of a scenario, by its name
 */
export function describe(choice: Choice, titleOf: (name: string) => string) {
  const words = [
    choice.scenario && titleOf(choice.scenario),
    choice.algorithm && (choice.algorithm === "fixed" ? `${ALGORITHMS.fixed} of ${choice.fixed}` : ALGORITHMS[choice.algorithm]),
    choice.policy && (choice.policy === "strict_fair" ? "strictly fair" : "bounded borrowing"),
    choice.ramp !== "" && (choice.ramp > 0 ? `a ramp of ${choice.ramp / 1000} s` : "no ramp"),
    choice.advisory && (choice.advisory === "yes" ? "tasks that can call start first" : "tasks start in order"),
    choice.yields && (choice.yields === "yes" ? "yields while waiting" : "does not yield"),
  ].filter((word) => word !== false && word !== "");
  return words.length > 0 ? words.join(", ") : "as the scenario has it";
}

/** What a side has instead of what the scenario has. */
function ownOf(scenario: Scenario, choice: Choice): Partial<Scenario> {
  const { algorithm, fixed, policy, ramp, advisory, yields } = choice;
  const models = (scenario.models ?? []).map((model) => ({
    ...model,
    ...(algorithm && { algorithm: limitChoice(algorithm, fixed) }),
    ...(ramp !== "" && { request: { ...model.request, ramp_ms: ramp } }),
  }));
  return {
    models,
    ...(policy && { policy: policyChoice(policy) }),
    ...(advisory && { advisory: advisory === "yes" }),
    ...(yields && { yields: yields === "yes" }),
  };
}

/** What to run, and what it has of its own: the scenario itself, or both sides of a comparison. */
export async function sidesOf(base: Scenario, choices: [Choice, Choice] | undefined, find: (name: string) => Promise<Scenario>): Promise<{ scenario: Scenario, own: Partial<Scenario> }[]> {
  if (!choices) return [{ scenario: base, own: {} }];
  const sides = choices.map(async (choice) => {
    const scenario = choice.scenario ? await find(choice.scenario) : base;
    return { scenario, own: ownOf(scenario, choice) };
  });
  return Promise.all(sides);
}
