/** The limits of a resource: settings, checks, and conversion to numbers. */

import { anyNumber, onlyKnown, shown, spanMs, whole, wholeBig } from "../errors.js";

/**
 * Settings of the adaptive limit and of cooldowns. Each has a default. `maxLimit`, the cooldowns and the ramp
 * apply to every algorithm. The others belong to `aimd`, and select it where no algorithm is named.
 */
export interface AdaptiveSettings {
  /** `aimd`: the initial limit of concurrent calls, from 1 up. Default: `maxParallel`. */
  readonly initialLimit?: number | undefined;
  /** The maximum of the limit, if lower than `maxParallel`; from 1 up. Default: none. */
  readonly maxLimit?: number | undefined;
  /** `aimd`: the factor applied to the limit after a rate-limited call, 0.01 to 0.99. Default: 0.75. */
  readonly decreaseFactor?: number | undefined;
  /** `aimd`: the step by which the limit increases, from 1 up. Default: 1. */
  readonly increaseStep?: number | undefined;
  /** `aimd`: successes outside a cooldown after which the limit increases, from 1 up. Default: 25. */
  readonly successesUntilIncrease?: number | undefined;
  /** `aimd`: whether the limit increases only if it was reached since its last change. Default: false. */
  readonly growOnEvidence?: boolean | undefined;
  /**
   * The cooldown of a resource after a rate-limited call without Retry-After, above 0 ms. Under `tide` this
   * is a maximum. Default: 2000.
   */
  readonly cooldownMs?: number | undefined;
  /**
   * The longest cooldown after one rate-limited call, whatever the provider asks for; at least `cooldownMs`.
   * Default: 600000.
   */
  readonly maxCooldownMs?: number | undefined;
  /**
   * The duration of the ramp in which the limit of a new resource rises from one call, from 0 ms up. Default:
   * 0, no ramp.
   */
  readonly rampMs?: number | undefined;
  /** The idle time after which the ramp runs again, from half the limit; from 0 ms up. Default: never. */
  readonly rampAfterIdleMs?: number | undefined;
}

/**
 * Additive increase, multiplicative decrease, configured by {@link AdaptiveSettings}. For providers that
 * answer 429 when they are overloaded.
 */
export interface Aimd {
  readonly name: "aimd";
}

/** A constant limit. */
export interface Fixed {
  readonly name: "fixed";
  /** Concurrent calls, from 1 up. */
  readonly limit: number;
}

/** Adapts to latency, for providers that queue calls instead of answering 429 (after TCP Vegas). */
export interface Vegas {
  readonly name: "vegas";
  /** The initial limit, from 1 up. Default: 4. */
  readonly initialLimit?: number | undefined;
  /** The number of calls queued inside the provider below which the limit increases, above 0. Default: 1. */
  readonly alpha?: number | undefined;
  /** The number of queued calls above which the limit decreases, at least `alpha`. Default: 3. */
  readonly beta?: number | undefined;
  /** Windows after which the shortest latency is measured again, from 2 up. Default: 60. */
  readonly windowsUntilRelearned?: number | undefined;
}

/** What a Retry-After stops: the resource, the call, or what the algorithm has learned that it applies to. */
export type RetryAfterStops = "learned" | "resource" | "call";

/** In the core's order. */
const RETRY_AFTER_STOPS: readonly RetryAfterStops[] = ["learned", "resource", "call"];

/**
 * Finds how many concurrent calls, or calls per minute, the provider accepts, and stays there. This is the
 * default; its settings rarely need a change.
 */
export interface Tide {
  readonly name: "tide";
  /** The initial limit, from 1 up. Default: 10. */
  readonly initialLimit?: number | undefined;
  /** Successes at a limit after which a higher one is tried, from 1 up. Default: 16. */
  readonly probeAfter?: number | undefined;
  /** The same number after many failed tries, at least `probeAfter`. Default: 240. */
  readonly probeAfterMost?: number | undefined;
  /**
   * What a Retry-After stops: the whole resource, only the rate-limited call, or (`learned`) whichever of the
   * two the provider's behaviour shows. Default: `learned`.
   */
  readonly retryAfter?: RetryAfterStops | undefined;
  /**
   * The factor applied to the limit when calls are rate limited and none is accepted, 0.01 to 0.99. Default:
   * 0.7.
   */
  readonly decreaseFactor?: number | undefined;
  /** The longest pause after a rate-limited call without Retry-After, above 0 ms. Default: 2000. */
  readonly longestPauseMs?: number | undefined;
  /**
   * The tolerated ratio of latency to the latency of a call alone, where no call is rate limited; 1.05 to
   * 100. Default: 1.3.
   */
  readonly latencyTolerance?: number | undefined;
}

/** The algorithm that sets the limit: a name, for its defaults, or an object with settings. */
export type Algorithm = "aimd" | "vegas" | "tide" | Aimd | Vegas | Tide | Fixed;

/** What a budget counts. */
export type BudgetDimension = "requests" | "input_tokens" | "output_tokens" | "total_tokens";

/** @internal In the core's order. */
export const DIMENSIONS: readonly BudgetDimension[] = ["requests", "input_tokens", "output_tokens", "total_tokens"];

/** A rate: a bucket that holds `burst` and refills by `limit` in each window, evenly. */
export interface Budget {
  /** The unit that it counts. */
  readonly dimension: BudgetDimension;
  /** The amount refilled in each window. A whole number from 1 to 10^15. */
  readonly limit: number;
  /** The window, above 0 ms. Default: 60000, a minute. */
  readonly windowMs?: number | undefined;
  /**
   * The most that can be spent at once after idle time, 1 to 10^15. Default: `limit`. Choose a small burst
   * for a provider that counts in fixed or sliding windows: a full bucket and its refill together allow
   * `burst + limit` in one window.
   */
  readonly burst?: number | undefined;
}

/** The limits of a resource: concurrent calls, and rates. */
export interface Limits extends AdaptiveSettings {
  /**
   * The maximum of concurrent calls over all domains of the model, from 1 up. Registering again changes it.
   */
  readonly maxParallel: number;
  /**
   * The algorithm that sets the limit between 1 and `maxParallel`. Default: `tide`; `aimd` where one of its
   * settings is given.
   */
  readonly algorithm?: Algorithm | undefined;
  /** Rates that apply in addition to the limit of concurrent calls. Default: none. */
  readonly budgets?: readonly Budget[] | undefined;
  /** The weight of calls without a tenant relative to those of tenants, 2^-20 to 2^20. Default: 1. */
  readonly weight?: number | undefined;
}

/** Checks a value and converts it to a number. */
type Read = (what: string, value: unknown) => number;

/** A setting: its name here, its name in the core, and its conversion. */
type Setting = readonly [name: string, core: string, read: Read];

const flag: Read = (what, value) => {
  if (typeof value !== "boolean") throw new TypeError(`${what} must be true or false, not ${shown(value)}`);
  return value ? 1 : 0;
};

const retryAfterStops: Read = (what, value) => {
  const at = RETRY_AFTER_STOPS.indexOf(value as RetryAfterStops);
  if (at < 0) throw new RangeError(`${what} is ${shown(value)}; expected ${RETRY_AFTER_STOPS.join(", ")}`);
  return at;
};

/** In the order that the wasm module expects, like all tables below. */
const ADAPTIVE: readonly Setting[] = [
  ["initialLimit", "initial_limit", whole],
  ["maxLimit", "max_limit", whole],
  ["decreaseFactor", "decrease_factor", anyNumber],
  ["increaseStep", "increase_step", whole],
  ["successesUntilIncrease", "successes_until_increase", whole],
  ["growOnEvidence", "grow_on_evidence", flag],
  ["cooldownMs", "cooldown", spanMs],
  ["maxCooldownMs", "max_cooldown", spanMs],
  ["rampMs", "ramp", spanMs],
  ["rampAfterIdleMs", "ramp_after_idle", spanMs],
];

const ALGORITHMS: readonly (readonly [name: string, settings: readonly Setting[]])[] = [
  ["aimd", []],
  [
    "vegas",
    [
      ["initialLimit", "initial_limit", whole],
      ["alpha", "alpha", anyNumber],
      ["beta", "beta", anyNumber],
      ["windowsUntilRelearned", "windows_until_relearned", whole],
    ],
  ],
  [
    "tide",
    [
      ["initialLimit", "initial_limit", whole],
      ["probeAfter", "probe_after", whole],
      ["probeAfterMost", "probe_after_most", whole],
      ["retryAfter", "retry_after", retryAfterStops],
      ["decreaseFactor", "decrease_factor", anyNumber],
      ["longestPauseMs", "longest_pause", spanMs],
      ["latencyTolerance", "latency_tolerance", anyNumber],
    ],
  ],
  ["fixed", [["limit", "limit", whole]]],
];

/** The algorithm of resources that name none. */
const DEFAULT_ALGORITHM = "tide";

/** The {@link AdaptiveSettings} that only `aimd` has. */
const AIMD_NAMES = ["initialLimit", "decreaseFactor", "increaseStep", "successesUntilIncrease", "growOnEvidence"] as const;

/** The names of {@link AdaptiveSettings}. */
export const ADAPTIVE_NAMES: readonly string[] = ADAPTIVE.map(([name]) => name);

const LIMIT_NAMES = [...ADAPTIVE_NAMES, "maxParallel", "algorithm", "budgets", "weight"];

/** @internal Limits as numbers for the core, and the error messages for settings that it rejects. */
export class LimitNumbers {
  readonly maxParallel: number;
  readonly weight: number;
  readonly adaptive: Float64Array;
  readonly algorithm: Float64Array;
  readonly budgets: Float64Array;
  /** Name and given value of each setting, by the name that the core uses. */
  readonly #given = new Map<string, readonly [name: string, value: unknown]>();

  constructor(limits: Limits, defaults: AdaptiveSettings) {
    if (typeof limits !== "object" || limits === null) throw new TypeError("the limits of a resource must be an object");
    onlyKnown("the limits of a resource", limits, LIMIT_NAMES);
    this.maxParallel = whole("maxParallel", limits.maxParallel);
    this.#given.set("max_parallel", ["maxParallel", limits.maxParallel]);
    this.weight = anyNumber("weight", limits.weight ?? 1);
    this.#given.set("weight", ["weight", limits.weight]);
    this.adaptive = this.#read("", "", ADAPTIVE, { ...defaults, ...withoutUndefined(limits) });
    this.algorithm = this.#readAlgorithm(chosenAlgorithm(limits, defaults));
    this.budgets = this.#readBudgets(limits.budgets ?? []);
  }

  #read(prefix: string, corePrefix: string, settings: readonly Setting[], given: object): Float64Array {
    const values = given as Readonly<Record<string, unknown>>;
    return Float64Array.from(settings, ([name, core, read]) => {
      const value = values[name];
      this.#given.set(corePrefix + core, [prefix + name, value]);
      return value === undefined ? NaN : read(prefix + name, value);
    });
  }

  #readAlgorithm(given: Algorithm): Float64Array {
    const name = typeof given === "string" ? given : given?.name;
    const number = ALGORITHMS.findIndex(([known]) => known === name);
    const [, settings] = ALGORITHMS[number] ?? [];
    if (settings === undefined) {
      const names = ALGORITHMS.map(([known]) => known).join(", ");
      throw new TypeError(`no algorithm is called ${shown(name)}; there are ${names}`);
    }
    const own = typeof given === "string" ? {} : given;
    onlyKnown(`the algorithm ${name}`, own, ["name", ...settings.map(([known]) => known)]);
    const numbers = this.#read("algorithm.", "algorithm.", settings, own);
    return Float64Array.of(number, ...numbers);
  }

  #readBudgets(budgets: readonly Budget[]): Float64Array {
    if (!Array.isArray(budgets)) throw new TypeError("budgets must be an array");
    const numbers = budgets.flatMap((budget: Budget, place) => {
      const what = `budgets[${place}]`;
      if (typeof budget !== "object" || budget === null) throw new TypeError(`${what} must be an object`);
      onlyKnown(what, budget, ["dimension", "limit", "windowMs", "burst"]);
      const dimension = DIMENSIONS.indexOf(budget.dimension);
      if (dimension < 0) {
        const names = DIMENSIONS.join(", ");
        throw new TypeError(`${what}.dimension is ${shown(budget.dimension)}; there are ${names}`);
      }
      const { burst } = budget;
      return [
        dimension,
        wholeBig(`${what}.limit`, budget.limit),
        spanMs(`${what}.windowMs`, budget.windowMs ?? 60_000),
        burst === undefined ? NaN : wholeBig(`${what}.burst`, burst),
      ];
    });
    for (const [core, name] of [["limit", "limit"], ["window", "windowMs"], ["burst", "burst"]] as const) {
      this.#given.set(`budget.${core}`, [`${name} of a budget`, undefined]);
    }
    return Float64Array.from(numbers);
  }

  /**
   * Returns the error for a setting that the core rejected. `coreError` has two lines: the core's name of the
   * setting, and what was expected.
   */
  errorOf(coreError: unknown): unknown {
    if (typeof coreError !== "string") return coreError;
    const [core = "", expected = ""] = coreError.split("\n");
    const [name, value] = this.#given.get(core) ?? [core, undefined];
    const scope = core.slice(0, core.lastIndexOf(".") + 1);
    const here = expected.replace(/`(\w+)`/g, (all, other: string) => {
      const known = this.#given.get(scope + other)?.[0];
      return known === undefined ? all : `\`${known}\``;
    });
    return new RangeError(`${name} is ${value === undefined ? "out of range" : shown(value)}; expected ${here}`);
  }
}

/**
 * Returns the algorithm of a resource: the named one, else `aimd` if one of its settings is given for the
 * resource or the gate.
 */
function chosenAlgorithm(limits: Limits, defaults: AdaptiveSettings): Algorithm {
  const { algorithm } = limits;
  const own = AIMD_NAMES.find((name) => limits[name] !== undefined);
  if (algorithm === undefined) {
    const isAimd = own !== undefined || AIMD_NAMES.some((name) => defaults[name] !== undefined);
    return isAimd ? "aimd" : DEFAULT_ALGORITHM;
  }
  const name = typeof algorithm === "string" ? algorithm : algorithm?.name;
  if (own !== undefined && name !== "aimd") {
    throw new TypeError(`${own} is a setting of the algorithm "aimd", and algorithm is ${shown(name)}; settings of other algorithms belong in \`algorithm\``);
  }
  return algorithm;
}

function withoutUndefined(given: object): object {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}
