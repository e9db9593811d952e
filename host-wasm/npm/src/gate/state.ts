/** The state of a gate, as objects. */

import { inWords, known } from "../errors.js";
import type { Resource } from "./keys.js";
import { type BudgetDimension, DIMENSIONS } from "./limits.js";
import { OUTCOMES, type Outcome } from "../outcome.js";

/** The state of one rate budget. */
export interface BudgetSnapshot {
  readonly dimension: BudgetDimension;
  /** The window, in milliseconds. */
  readonly windowMs: number;
  /** The limit in force: the configured one, or a lower one that the provider stated. */
  readonly limit: number;
  /** What may be spent now, rounded down; negative while it is overdrawn. */
  readonly available: number;
  /** The sum of the estimates of calls in flight. */
  readonly reserved: number;
  /** The source of the budget: the settings, or the headers of the provider's responses. */
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
  outage: "it did not respond",
  key_rejected: "the API key is rejected",
  quota_exhausted: "the account is out of funds or quota",
  model_not_found: "there is no such model",
  rate_limited: "every call was rate limited",
};

/** Whether a provider and model responds, in any domain. */
export type Health =
  | { readonly state: "healthy" }
  | {
      /**
       * `suspected`: its latest calls failed, and calls start one at a time. `probing`: it is down, and one
       * call in flight tests it.
       */
      readonly state: "suspected" | "probing";
      /** The time since its first failure. */
      readonly failingForMs: number;
    }
  | {
      /** No call starts before the next probe. */
      readonly state: "down";
      /** The time since its first failure. */
      readonly failingForMs: number;
      readonly probeInMs: number;
    }
  | {
      /** Calls are denied. */
      readonly state: "unavailable";
      readonly cause: UnavailableCause;
      readonly forMs: number;
      /** The time until one call tests whether it can be used again; undefined if no test is planned. */
      readonly probeInMs: number | undefined;
    };

/** The state of one resource at one instant. */
export interface ResourceSnapshot {
  /** When it was read, on the clock of `performance.now()`. */
  readonly atMs: number;
  /** The number of commands that the gate has processed. */
  readonly sequence: number;
  readonly provider: string;
  readonly model: string;
  readonly domain: string;
  /** The most that the limit can become: the lower of `maxParallel` and `maxLimit`. */
  readonly effectiveMax: number;
  /** The adaptive limit in force. */
  readonly currentLimit: number;
  /** Calls in flight. */
  readonly inFlight: number;
  /** Leases in use. Always equals `inFlight`; a difference is a leak. */
  readonly activeLeases: number;
  /**
   * The age of the oldest lease; undefined if there is none, or if no time was recorded when it was granted.
   */
  readonly oldestLeaseAgeMs: number | undefined;
  /** Waiting calls. */
  readonly waiters: number;
  /** Waiting calls whose pipeline worker holds no task resources. */
  readonly yielded: number;
  /** The remaining time of the current cooldown; 0 if there is none. */
  readonly cooldownRemainingMs: number;
  /** The limit at which the first decrease happened; 0 before any. */
  readonly rateLimitCeiling: number;
  /** Rate-limited calls since the last success. */
  readonly consecutiveRateLimits: number;
  /** Successes since the limit last changed. */
  readonly successStreak: number;
  /** How the last call ended. */
  readonly lastOutcome: Outcome | undefined;
  /**
   * The start-up ramp in progress: its target limit and the remaining time (undefined before the first call).
   */
  readonly ramp: { readonly target: number; readonly remainingMs: number | undefined } | undefined;
  /** The cap over all domains of the model. */
  readonly providerCap: number;
  /** Calls in flight over all domains of the model. */
  readonly providerInFlight: number;
  /** Whether the provider and model responds. */
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
    yielded: at(8),
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
 * Why the first waiting call of a resource, or the next call if none waits, cannot start. `text` states it in
 * words.
 */
export type Why =
  | {
      /** A cooldown is in force: the provider asked for it, or rate limited a call without a Retry-After. */
      readonly kind: "cooldown";
      readonly text: string;
      /** The remaining time. */
      readonly endsInMs: number;
    }
  | {
      /** The model's `maxParallel` over all domains is reached. */
      readonly kind: "provider_cap";
      readonly text: string;
      /** The maximum. */
      readonly cap: number;
      /** How many of the calls in flight hold their slot for a response body that is not being read. */
      readonly unreadBodies?: number;
    }
  | {
      /** The adaptive limit is reached. */
      readonly kind: "limit";
      readonly text: string;
      /** The limit in force. */
      readonly limit: number;
      /**
       * The time until the limit changes without a call ending, as in a ramp; undefined if only the end of a
       * call changes it.
       */
      readonly changesInMs: number | undefined;
      /** How many of the calls in flight hold their slot for a response body that is not being read. */
      readonly unreadBodies?: number;
    }
  | {
      /** The limit spaces calls in time. Fewer calls are in flight than it allows. */
      readonly kind: "paced";
      readonly text: string;
      /** The time until the next call starts. */
      readonly opensInMs: number;
    }
  | {
      /** A rate budget is spent. */
      readonly kind: "budget";
      readonly text: string;
      /** The time until the budget suffices, unless other calls spend it first. */
      readonly fitsInMs: number;
    }
  | {
      /** The rate that the provider states in its headers is reached. */
      readonly kind: "stated_rate";
      readonly text: string;
      readonly dimension: BudgetDimension;
      /** The amount allowed in each window. */
      readonly limit: number;
      readonly windowMs: number;
      /** The time until the next call starts, unless other calls spend the rate first. */
      readonly fitsInMs: number;
    }
  | {
      /** The provider is down. */
      readonly kind: "outage";
      readonly text: string;
      /** The time until the next probe; undefined while a probe is in flight. */
      readonly probeInMs: number | undefined;
    }
  | {
      /** The provider or model cannot be used. */
      readonly kind: "unavailable";
      readonly text: string;
      readonly cause: UnavailableCause;
      /** The time until one call tests whether it can be used again; undefined if no test is planned. */
      readonly probeInMs: number | undefined;
    }
  | {
      /**
       * `task_slots`: its pipeline worker has yielded its task resources and waits to get them back. `turn`:
       * another call goes first. `shutdown`: the gate is shut down. `paused`: {@link RequestGate.pause} is in
       * force.
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
      return { kind: "cooldown", text: prefixed(`a cooldown is in force for another ${inWords(untilMs)}`), endsInMs: untilMs };
    case 1:
      return { kind: "provider_cap", text: prefixed(`the limit of ${calls} concurrent ${calls === 1 ? "call" : "calls"} is reached`), cap: calls };
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
      const probe = probeInMs === undefined ? "a probe is in flight" : `the next probe is in ${inWords(probeInMs)}`;
      return { kind: "outage", text: prefixed(`the provider is down; ${probe}`), probeInMs };
    }
    case 7: {
      const [cause, probeInMs] = [causeOf(calls), known(untilMs)];
      const again = probeInMs === undefined ? "" : `; the next probe is in ${inWords(probeInMs)}`;
      return { kind: "unavailable", text: prefixed(`it cannot be used: ${CAUSE_TEXTS[cause]}${again}`), cause, probeInMs };
    }
    case 8:
      return { kind: "paced", text: prefixed(`calls are spaced in time; the next call starts in ${inWords(untilMs)}`), opensInMs: untilMs };
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
      return { kind: "turn", text: prefixed("another call goes first") };
  }
}

/** @internal Adds how many of the calls in flight wait for their response bodies to be read. */
export function withUnread(why: Why, unreadBodies: number): Why {
  if (unreadBodies === 0 || (why.kind !== "limit" && why.kind !== "provider_cap")) return why;
  const unread = unreadBodies === 1 ? "1 call waits for its response body to be read" : `${unreadBodies} calls wait for their response bodies to be read`;
  return { ...why, text: `${why.text}, and ${unread}`, unreadBodies };
}
