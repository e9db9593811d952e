// @ts-check
// The settings in force at an instant: what the scenario says, and what was changed since.

/** @typedef {import("../pkg/tidegate_playground.js").AimdConfig} AimdConfig */
/** @typedef {import("../pkg/tidegate_playground.js").Change} Change */
/** @typedef {import("../pkg/tidegate_playground.js").Intervention} Intervention */
/** @typedef {import("../pkg/tidegate_playground.js").LimitChoice} LimitChoice */
/** @typedef {import("../pkg/tidegate_playground.js").PolicyChoice} PolicyChoice */
/** @typedef {import("../pkg/tidegate_playground.js").Scenario} Scenario */

/**
 * @typedef {object} ModelSettings
 * @property {LimitChoice} algorithm
 * @property {AimdConfig} request
 * @property {number} cap
 */

/**
 * @typedef {object} Settings
 * @property {PolicyChoice} policy
 * @property {Map<string, ModelSettings>} models by name
 */

/** The settings of a scenario at an instant in virtual ms. @param {Scenario} scenario @param {readonly Change[]} changes @param {number} at
 * @returns {Settings} */
export function settingsAt(scenario, changes, at) {
  const models = new Map(
    (scenario.models ?? []).map((model) => [
      model.name,
      { algorithm: model.algorithm ?? { name: /** @type {const} */ ("aimd") }, request: model.request ?? {}, cap: model.max_parallel },
    ]),
  );
  /** @type {Settings} */
  const settings = { policy: scenario.policy ?? { bounded_borrow: {} }, models };
  for (const change of changes) {
    if (change.at_ms > at) break;
    apply(settings, change);
  }
  return settings;
}

/** @param {Settings} settings @param {Intervention} what */
function apply(settings, what) {
  if (what.set === "policy") {
    settings.policy = what.policy;
    return;
  }
  const model = "model" in what ? settings.models.get(what.model) : undefined;
  if (!model) return;
  if (what.set === "algorithm") model.algorithm = what.algorithm;
  else if (what.set === "request") model.request = what.request;
  else if (what.set === "max_parallel") model.cap = what.calls;
}
