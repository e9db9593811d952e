// @ts-check
// What the two sides of a comparison change in the scenario they start from.

/** @typedef {import("../pkg/tidegate_playground.js").LimitChoice} LimitChoice */
/** @typedef {import("../pkg/tidegate_playground.js").PolicyChoice} PolicyChoice */
/** @typedef {import("../pkg/tidegate_playground.js").Scenario} Scenario */

/**
 * One side. Empty text means: as the scenario has it.
 * @typedef {object} Choice
 * @property {string} scenario the name of another scenario
 * @property {"" | "aimd" | "tide" | "vegas" | "fixed"} algorithm of every provider
 * @property {number} fixed the limit, if it is fixed
 * @property {"" | "strict_fair" | "bounded_borrow"} policy
 * @property {"" | number} ramp of every provider, in virtual ms
 * @property {"" | "yes" | "no"} advisory
 * @property {"" | "yes" | "no"} yields
 */

/** A side that changes only this. @param {Partial<Choice>} choice @returns {Choice} */
export const complete = (choice) => ({ ...sameAsScenario(), ...choice });

/** A side that changes nothing. @returns {Choice} */
export function sameAsScenario() {
  return { scenario: "", algorithm: "", fixed: 8, policy: "", ramp: "", advisory: "", yields: "" };
}

/** The limit algorithm of that name, as a setting. @param {Exclude<Choice["algorithm"], "">} name @param {number} fixed @returns {LimitChoice} */
export function limitChoice(name, fixed) {
  return name === "fixed" ? { name, limit: fixed } : { name };
}

/** @param {Exclude<Choice["policy"], "">} name @returns {PolicyChoice} */
export function policyChoice(name) {
  return name === "strict_fair" ? name : { bounded_borrow: {} };
}

/** A scenario with what a side changes in it. @param {Scenario} scenario @param {Choice} choice @returns {Scenario} */
export function applied(scenario, choice) {
  const { algorithm, fixed, policy, ramp, advisory, yields } = choice;
  const models = (scenario.models ?? []).map((model) => ({
    ...model,
    ...(algorithm && { algorithm: limitChoice(algorithm, fixed) }),
    ...(ramp !== "" && { request: { ...model.request, ramp_ms: ramp } }),
  }));
  return {
    ...scenario,
    models,
    ...(policy && { policy: policyChoice(policy) }),
    ...(advisory && { advisory: advisory === "yes" }),
    ...(yields && { yields: yields === "yes" }),
  };
}

/** The scenarios to run: the one itself, or both sides of a comparison.
 * @param {Scenario} base @param {[Choice, Choice] | undefined} choices @param {(name: string) => Promise<Scenario>} find */
export async function scenariosOf(base, choices, find) {
  if (!choices) return [base];
  return Promise.all(choices.map(async (choice) => applied(choice.scenario ? await find(choice.scenario) : base, choice)));
}
