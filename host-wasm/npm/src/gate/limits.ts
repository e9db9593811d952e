/** What a resource may be asked for. */

import { anyNumber, onlyKnown, shown, spanMs, whole, wholeBig } from "../errors.js";

/**
 * Settings of the adaptive limit and of pauses. Each has a default. `maxLimit`, the cooldowns and the ramp
 * hold for every algorithm; the others are of `aimd`, and select it where no algorithm is named.
 */
export interface AdaptiveSettings {
  /**
   * Of `aimd`: calls that may be out at once in the beginning, from 1 up. Default: as many as `maxParallel`.
   */
  readonly initialLimit?: number | undefined;
  /** A bound on the limit below `maxParallel`, from 1 up. Default: none. */
  readonly maxLimit?: number | undefined;
  /** Of `aimd`: what the limit is multiplied by after a refusal, 0.01 to 0.99. Default: 0.75. */
  readonly decreaseFactor?: number | undefined;
  /** Of `aimd`: what the limit rises by, from 1 up. Default: 1. */
  readonly increaseStep?: number | undefined;
  /** Of `aimd`: successes outside a pause that make it rise, from 1 up. Default: 25. */
  readonly successesUntilIncrease?: number | undefined;
  /** Of `aimd`: whether it rises only once it was reached since it last changed. Default: false. */
  readonly growOnEvidence?: boolean | undefined;
  /**
   * How long a resource rests after a refusal that names no time itself, above 0 ms; under `tide` at most.
   * Default: 2000.
   */
  readonly cooldownMs?: number | undefined;
  /**
   * The longest rest after one refusal, whatever the provider says; at least `cooldownMs`. Default: 600000.
   */
  readonly maxCooldownMs?: number | undefined;
  /** Over how long a new resource warms up from one call at once, from 0 ms up. Default: 0, not at all. */
  readonly rampMs?: number | undefined;
  /** Warm up again, from half the limit, after idling for longer than this, from 0 ms up. Default: never. */
  readonly rampAfterIdleMs?: number | undefined;
}

/**
 * Additive increase, multiplicative decrease, by the {@link AdaptiveSettings}. For providers that answer 429
 * when they have enough.
 */
export interface Aimd {
  readonly name: "aimd";
}

/** A limit that does not move. */
export interface Fixed {
  readonly name: "fixed";
  /** Calls at once, from 1 up. */
  readonly limit: number;
}

/** Watches latency, for providers that queue instead of refusing (after TCP Vegas). */
export interface Vegas {
  readonly name: "vegas";
  /** The limit to start at, from 1 up. Default: 4. */
  readonly initialLimit?: number | undefined;
  /** Calls queued inside the provider below which the limit grows, above 0. Default: 1. */
  readonly alpha?: number | undefined;
  /** Those above which it shrinks, at least `alpha`. Default: 3. */
  readonly beta?: number | undefined;
  /** Windows after which the shortest latency is learned anew, from 2 up. Default: 60. */
  readonly windowsUntilRelearned?: number | undefined;
}

/** What a Retry-After stops. */
export type RetryAfterStops = "learned" | "resource" | "call";

/** In the order of the core. */
const RETRY_AFTER_STOPS: readonly RetryAfterStops[] = ["learned", "resource", "call"];

/**
 * Finds how many calls the provider accepts, at once or per minute, and stays there. The default; its
 * settings are meant to be left alone.
 */
export interface Tide {
  readonly name: "tide";
  /** The limit to start climbing from, from 1 up. Default: 10. */
  readonly initialLimit?: number | undefined;
  /** Successes at a limit after which one more is tried, from 1 up. Default: 16. */
  readonly probeAfter?: number | undefined;
  /** The same after many tries in vain, at least `probeAfter`. Default: 240. */
  readonly probeAfterMost?: number | undefined;
  /**
   * What a Retry-After stops: the whole resource, the refused call only, or whatever refusals show. Default:
   * `learned`.
   */
  readonly retryAfter?: RetryAfterStops | undefined;
  /** What a refusal leaves of the limit while nothing is let through, 0.01 to 0.99. Default: 0.7. */
  readonly decreaseFactor?: number | undefined;
  /** The longest pause after a refusal that asks for none, above 0 ms. Default: 2000. */
  readonly longestPauseMs?: number | undefined;
  /** How many times longer calls may take than alone, where nothing is refused; 1.05 to 100. Default: 1.3. */
  readonly latencyTolerance?: number | undefined;
}

/** What decides the limit: by name, with its defaults, or with settings. */
export type Algorithm = "aimd" | "vegas" | "tide" | Aimd | Vegas | Tide | Fixed;

/** What a budget counts. */
export type BudgetDimension = "requests" | "input_tokens" | "output_tokens" | "total_tokens";

/** @internal In the order of the core. */
export const DIMENSIONS: readonly BudgetDimension[] = ["requests", "input_tokens", "output_tokens", "total_tokens"];

/** A rate: a bucket that holds `burst` and refills by `limit` in each window, evenly. */
export interface Budget {
  /** What it counts. */
  readonly dimension: BudgetDimension;
  /** How much refills in each window. A whole number from 1 to 10^15. */
  readonly limit: number;
  /** The window, above 0 ms. Default: 60000, a minute. */
  readonly windowMs?: number | undefined;
  /**
   * The most that may be spent at once after a rest, 1 to 10^15. Default: `limit`. A provider that counts in
   * fixed or sliding windows wants a small one: a full bucket and its refill together let `burst + limit`
   * through in one window.
   */
  readonly burst?: number | undefined;
}

/** What a resource may be asked for at once, and per minute. */
export interface Limits extends AdaptiveSettings {
  /** Calls in flight at most, all domains of the model together; from 1 up. Registering again changes it. */
  readonly maxParallel: number;
  /**
   * What decides the limit between 1 and `maxParallel`. Default: `tide`; `aimd` where one of its settings is
   * given.
   */
  readonly algorithm?: Algorithm | undefined;
  /** Rates, beside the limit of calls in flight. Default: none. */
  readonly budgets?: readonly Budget[] | undefined;
  /** The share of calls without a tenant beside those of others, 2^-20 to 2^20. Default: 1. */
  readonly weight?: number | undefined;
}

/** How a value is checked and made a number. */
type Read = (what: string, value: unknown) => number;

/** A setting: its name here, its name in the core, how it is read. */
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

/** In the order of the wasm module, like all below. */
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

/** What decides the limit where nobody says. */
const DEFAULT_ALGORITHM = "tide";

/** Those of {@link AdaptiveSettings} that only `aimd` has. */
const AIMD_NAMES = ["initialLimit", "decreaseFactor", "increaseStep", "successesUntilIncrease", "growOnEvidence"] as const;

/** The names of {@link AdaptiveSettings}. */
export const ADAPTIVE_NAMES: readonly string[] = ADAPTIVE.map(([name]) => name);

const LIMIT_NAMES = [...ADAPTIVE_NAMES, "maxParallel", "algorithm", "budgets", "weight"];

/** @internal Limits in numbers, and the words for what the core refuses in them. */
export class LimitNumbers {
  readonly maxParallel: number;
  readonly weight: number;
  readonly adaptive: Float64Array;
  readonly algorithm: Float64Array;
  readonly budgets: Float64Array;
  /** By the core's name of a setting: its name here, and what was given. */
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

  /** The error for what the core has refused: the name of a setting and what was expected, on two lines. */
  errorOf(refusal: unknown): unknown {
    if (typeof refusal !== "string") return refusal;
    const [core = "", expected = ""] = refusal.split("\n");
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
 * The algorithm of a resource: the one that is named, else `aimd` if one of its settings is given, here or
 * for the whole gate.
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
    throw new TypeError(`${own} is a setting of the algorithm "aimd", and algorithm is ${shown(name)}; settings of another stand in \`algorithm\``);
  }
  return algorithm;
}

function withoutUndefined(given: object): object {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}
