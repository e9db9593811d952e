/** What a gate shows of itself. */

import { inWords, known } from "../errors.js";
import type { Resource } from "./keys.js";
import { type BudgetDimension, DIMENSIONS } from "./limits.js";
import { OUTCOMES, type Outcome } from "../outcome.js";

/** The state of one rate budget. */
export interface BudgetSnapshot {
  readonly dimension: BudgetDimension;
  /** The window, in milliseconds. */
  readonly windowMs: number;
  /** The limit in force: the configured one, or a lower one that the provider named. */
  readonly limit: number;
  /** What may be spent now, rounded down; negative while it is overdrawn. */
  readonly available: number;
  /** Estimates of calls that are out. */
  readonly reserved: number;
  /** Where it comes from: the settings, or the headers of the provider's answers. */
  readonly source: "settings" | "headers";
}

/** Why calls to a provider and model are denied. */
export type UnavailableCause = "outage" | "key_rejected" | "quota_exhausted" | "model_not_found" | "rate_limited";

/** @internal In the order of the core. */
export const UNAVAILABLE_CAUSES: readonly UnavailableCause[] = [
  "outage",
  "key_rejected",
  "quota_exhausted",
  "model_not_found",
  "rate_limited",
];

const CAUSE_TEXTS: Readonly<Record<UnavailableCause, string>> = {
  outage: "it did not answer",
  key_rejected: "the key is refused",
  quota_exhausted: "the account is out of funds or quota",
  model_not_found: "there is no such model",
  rate_limited: "it answered nothing but rate limits",
};

/** Whether a provider and model answers, in any domain. */
export type Health =
  | { readonly state: "healthy" }
  | {
      /**
       * `suspected`: its latest calls failed, and calls go out one by one. `probing`: it is down, and a call
       * is out that finds out.
       */
      readonly state: "suspected" | "probing";
      /** Since its first failure. */
      readonly failingForMs: number;
    }
  | {
      /** Nothing goes out before the next probe. */
      readonly state: "down";
      /** Since its first failure. */
      readonly failingForMs: number;
      readonly probeInMs: number;
    }
  | {
      /** Calls are denied. */
      readonly state: "unavailable";
      readonly cause: UnavailableCause;
      readonly forMs: number;
      /** When one call goes out to find out whether it can be used again. */
      readonly probeInMs: number | undefined;
    };

/** The state of one resource at one instant. */
export interface ResourceSnapshot {
  /** When it was read, on the clock of `performance.now()`. */
  readonly atMs: number;
  /** Commands that the gate had carried out. */
  readonly sequence: number;
  readonly provider: string;
  readonly model: string;
  readonly domain: string;
  /** The most that the limit can become: the lower of `maxParallel` and `maxLimit`. */
  readonly effectiveMax: number;
  /** The adaptive limit in force. */
  readonly currentLimit: number;
  /** Calls out. */
  readonly inFlight: number;
  /** Leases that are out, as the ledger has them: always `inFlight`, or something leaks. */
  readonly activeLeases: number;
  /**
   * How long ago the oldest of them was granted; undefined if there is none, or instants were not needed
   * then.
   */
  readonly oldestLeaseAgeMs: number | undefined;
  /** Calls that wait. */
  readonly waiters: number;
  /** Those of them whose pipeline workers hold nothing while they wait. */
  readonly suspended: number;
  /** What is left of the pause in force; 0 if there is none. */
  readonly cooldownRemainingMs: number;
  /** The limit that the first cut found too high; 0 before any. */
  readonly rateLimitCeiling: number;
  /** Refusals since the last good news. */
  readonly consecutiveRateLimits: number;
  /** Successes since the last change of limit. */
  readonly successStreak: number;
  /** How the last call ended. */
  readonly lastOutcome: Outcome | undefined;
  /**
   * The start-up ramp that runs: the limit it climbs to, and how long that takes (undefined before the first
   * call).
   */
  readonly ramp: { readonly target: number; readonly remainingMs: number | undefined } | undefined;
  /** The cap over all domains of the model. */
  readonly providerCap: number;
  /** Calls out over all domains of the model. */
  readonly providerInFlight: number;
  /** Whether the provider and model answers. */
  readonly health: Health;
  /** The rate budgets, in the order they were given. */
  readonly budgets: readonly BudgetSnapshot[];
}

const BUDGETS_FROM = 22;
const BUDGET = 6;

/** @internal */
export function readSnapshot(resource: Resource, numbers: Float64Array): ResourceSnapshot {
  const at = (place: number): number => numbers[place] ?? NaN;
  const budgets: BudgetSnapshot[] = [];
  for (let from = BUDGETS_FROM; from < numbers.length; from += BUDGET) {
    budgets.push({
      dimension: DIMENSIONS[at(from)] ?? "requests",
      windowMs: at(from + 4),
      limit: at(from + 1),
      available: at(from + 2),
      reserved: at(from + 3),
      source: at(from + 5) === 1 ? "headers" : "settings",
    });
  }
  const { provider, model, domain } = resource;
  const rampTarget = known(at(14));
  return {
    atMs: at(0),
    sequence: at(1),
    provider,
    model,
    domain,
    effectiveMax: at(2),
    currentLimit: at(3),
    inFlight: at(4),
    activeLeases: at(5),
    oldestLeaseAgeMs: known(at(6)),
    waiters: at(7),
    suspended: at(8),
    cooldownRemainingMs: at(9),
    rateLimitCeiling: at(10),
    consecutiveRateLimits: at(11),
    successStreak: at(12),
    lastOutcome: OUTCOMES[at(13)],
    ramp: rampTarget === undefined ? undefined : { target: rampTarget, remainingMs: known(at(15)) },
    providerCap: at(16),
    providerInFlight: at(17),
    health: readHealth(at(18), at(19), at(20), at(21)),
    budgets,
  };
}

function readHealth(state: number, sinceMs: number, probeInMs: number, cause: number): Health {
  switch (state) {
    case 1:
      return { state: "suspected", failingForMs: sinceMs };
    case 2:
      return { state: "down", failingForMs: sinceMs, probeInMs };
    case 3:
      return { state: "probing", failingForMs: sinceMs };
    case 4:
      return { state: "unavailable", cause: causeOf(cause), forMs: sinceMs, probeInMs: known(probeInMs) };
    default:
      return { state: "healthy" };
  }
}

function causeOf(number: number): UnavailableCause {
  return UNAVAILABLE_CAUSES[number] ?? "outage";
}

/**
 * Why the next call of a resource would have to wait, or the first one that waits does. `text` says it in
 * words.
 */
export type Why =
  | {
      /** A pause is in force: the provider asked for it, or refused without saying how long. */
      readonly kind: "cooldown";
      readonly text: string;
      /** What is left of it. */
      readonly endsInMs: number;
    }
  | {
      /** As many calls are out as the model may have, all domains together. */
      readonly kind: "provider_cap";
      readonly text: string;
      /** How many. */
      readonly cap: number;
      /** Those of them whose answers wait for somebody to read their bodies. */
      readonly unreadBodies?: number;
    }
  | {
      /** The adaptive limit is reached. */
      readonly kind: "limit";
      readonly text: string;
      /** The limit in force. */
      readonly limit: number;
      /** When time alone changes it, as a ramp does; undefined if nothing but the end of a call does. */
      readonly changesInMs: number | undefined;
      /** How many calls are out whose answers wait for somebody to read their bodies. */
      readonly unreadBodies?: number;
    }
  | {
      /** The limit spaces calls in time. Fewer are out than it allows. */
      readonly kind: "paced";
      readonly text: string;
      /** When the next goes out. */
      readonly opensInMs: number;
    }
  | {
      /** A rate budget is spent. */
      readonly kind: "budget";
      readonly text: string;
      /** When it suffices, unless others spend it first. */
      readonly fitsInMs: number;
    }
  | {
      /** The rate that the provider states in its headers is used up. */
      readonly kind: "stated_rate";
      readonly text: string;
      readonly dimension: BudgetDimension;
      /** How much is allowed in each window. */
      readonly limit: number;
      readonly windowMs: number;
      /** When it lets the next call out, unless others spend it first. */
      readonly fitsInMs: number;
    }
  | {
      /** The provider is down. */
      readonly kind: "outage";
      readonly text: string;
      /** When the next probe goes out; undefined while one is out. */
      readonly probeInMs: number | undefined;
    }
  | {
      /** The provider or model cannot be used. */
      readonly kind: "unavailable";
      readonly text: string;
      readonly cause: UnavailableCause;
      /** When one call goes out to find out whether it can be used again. */
      readonly probeInMs: number | undefined;
    }
  | {
      /**
       * `task_slots`: its pipeline worker has given back what it held, and cannot have it again yet. `turn`:
       * nothing but that it is another's turn. `shutdown`: the gate is shut. `paused`: it was told to pause.
       */
      readonly kind: "task_slots" | "turn" | "shutdown" | "paused";
      readonly text: string;
    };

/** Windows that have a name, by their milliseconds. */
const WINDOWS: Readonly<Record<number, string>> = {
  1_000: "a second",
  60_000: "a minute",
  3_600_000: "an hour",
  86_400_000: "a day",
};

/** @internal */
export function readWhy(
  resource: Resource,
  [kind, calls = 0, untilMs = NaN, counts = 0, windowMs = NaN]: Float64Array,
): Why {
  const prefixed = (what: string): string => `${resource.name}: ${what}`;
  switch (kind) {
    case 0:
      return { kind: "cooldown", text: prefixed(`a pause is in force for another ${inWords(untilMs)}`), endsInMs: untilMs };
    case 1:
      return { kind: "provider_cap", text: prefixed(`all ${calls} calls that it may have out are out`), cap: calls };
    case 2: {
      const changesInMs = known(untilMs);
      const change = changesInMs === undefined ? "" : `; it changes in ${inWords(changesInMs)}`;
      return { kind: "limit", text: prefixed(`the adaptive limit of ${calls} is reached${change}`), limit: calls, changesInMs };
    }
    case 3:
      return { kind: "budget", text: prefixed(`a rate budget is spent for another ${inWords(untilMs)}`), fitsInMs: untilMs };
    case 4:
      return { kind: "task_slots", text: prefixed("its worker has yielded and waits for its task resources") };
    case 6: {
      const probeInMs = known(untilMs);
      const probe = probeInMs === undefined ? "a call is out that finds out" : `it is tried again in ${inWords(probeInMs)}`;
      return { kind: "outage", text: prefixed(`the provider is down; ${probe}`), probeInMs };
    }
    case 7: {
      const [cause, probeInMs] = [causeOf(calls), known(untilMs)];
      const again = probeInMs === undefined ? "" : `; it is tried again in ${inWords(probeInMs)}`;
      return { kind: "unavailable", text: prefixed(`it cannot be used: ${CAUSE_TEXTS[cause]}${again}`), cause, probeInMs };
    }
    case 8:
      return { kind: "paced", text: prefixed(`calls are spaced in time; the next goes out in ${inWords(untilMs)}`), opensInMs: untilMs };
    case 9: {
      const dimension = DIMENSIONS[counts] ?? "requests";
      const window = WINDOWS[windowMs] ?? `in ${inWords(windowMs)}`;
      const rate = `${calls} ${dimension.replace("total_", "").replace("_", " ")} ${window}`;
      const text = prefixed(`the provider's own limit of ${rate} is reached: next in ${inWords(untilMs)}`);
      return { kind: "stated_rate", text, dimension, limit: calls, windowMs, fitsInMs: untilMs };
    }
    case 10:
      return { kind: "paused", text: prefixed("it is paused") };
    default:
      return { kind: "turn", text: prefixed("it is another's turn") };
  }
}

/** @internal The same, with the calls that are out only because nobody reads their answers. */
export function withUnread(why: Why, unreadBodies: number): Why {
  if (unreadBodies === 0 || (why.kind !== "limit" && why.kind !== "provider_cap")) return why;
  const them = unreadBodies === 1 ? "1 of them is an answer that nobody reads" : `${unreadBodies} of them are answers that nobody reads`;
  return { ...why, text: `${why.text}; ${them}`, unreadBodies };
}
