// The settings in force at an instant: what the scenario says, and what was changed since.
import type { LimitConfig, Change, Intervention, LimitChoice, PolicyChoice, Scenario } from "../pkg/tidegate_playground.js";

export interface ModelSettings {
  algorithm: LimitChoice;
  request: LimitConfig;
  cap: number;
}

export interface Settings {
  policy: PolicyChoice;
  /** By name. */
  models: Map<string, ModelSettings>;
}

/** The settings of a scenario at an instant in virtual ms. */
export function settingsAt(scenario: Scenario, changes: readonly Change[], at: number): Settings {
  const models = new Map(
    (scenario.models ?? []).map((model) => [
      model.name,
      { algorithm: model.algorithm ?? { name: "aimd" as const }, request: model.request ?? {}, cap: model.max_parallel },
    ]),
  );
  const settings: Settings = { policy: scenario.policy ?? { bounded_borrow: {} }, models };
  for (const change of changes) {
    if (change.at_ms > at) break;
    apply(settings, change);
  }
  return settings;
}

function apply(settings: Settings, what: Intervention) {
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
