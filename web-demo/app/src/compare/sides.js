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

/** What a side has instead of what the scenario has. @param {Scenario} scenario @param {Choice} choice @returns {Partial<Scenario>} */
function ownOf(scenario, choice) {
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

/** What to run, and what it has of its own: the scenario itself, or both sides of a comparison.
 * @param {Scenario} base @param {[Choice, Choice] | undefined} choices @param {(name: string) => Promise<Scenario>} find
 * @returns {Promise<{ scenario: Scenario, own: Partial<Scenario> }[]>} */
export async function sidesOf(base, choices, find) {
  if (!choices) return [{ scenario: base, own: {} }];
  const sides = choices.map(async (choice) => {
    const scenario = choice.scenario ? await find(choice.scenario) : base;
    return { scenario, own: ownOf(scenario, choice) };
  });
  return Promise.all(sides);
}
