/** Settings of a gate; each has a default. */
export interface GateOptions {
  /** Calls that may be out at once in the beginning. Default: as many as the resource was registered with. */
  initialLimit?: number;
  /** A bound on the limit, beside the one the resource was registered with. */
  maxLimit?: number;
  /** What the limit is multiplied with after a 429. Default 0.75. */
  decreaseFactor?: number;
  /** What the limit rises by. Default 1. */
  increaseStep?: number;
  /** How many successes in a row make it rise. Default 25. */
  successesUntilIncrease?: number;
  /** How long a resource rests after a 429 that names no time itself. Default 2000. */
  cooldownMs?: number;
  /** The longest rest, whatever the provider says. Default 600000. */
  maxCooldownMs?: number;
  /** Over how long a new resource warms up from one call at once. Default 0: not at all. */
  rampMs?: number;
  /** The longest wait of an `acquire` that names none. Default: no bound. */
  defaultTimeoutMs?: number;
}

/** The state of a resource at one instant. Instants and spans are nanoseconds. */
export interface ResourceSnapshot {
  at: number;
  /** Commands that the gate had carried out. */
  sequence: number;
  provider: string;
  model: string;
  domain: string;
  /** The most that the limit can become. */
  effective_max: number;
  /** The adaptive limit in force. */
  current_limit: number;
  /** Calls out. */
  in_flight: number;
  /** Leases that are out, as the ledger has them: always `in_flight`, or something leaks. */
  active_leases: number;
  /** When the oldest of them was granted, if instants were needed then. */
  oldest_lease: number | null;
  /** Releases in this resource's name that released nothing. */
  irregular_releases: { duplicate: number; stale: number; unknown_lease: number; wrong_controller: number };
  /** Calls that wait. */
  waiters: number;
  /** The end of the cooldown in force. */
  blocked_until: number | null;
  cooldown_remaining: number;
  /** The limit that the first cut found too high; 0 before any. */
  rate_limit_ceiling: number;
  consecutive_rate_limits: number;
  success_streak: number;
  last_outcome: Outcome | null;
  /** The start-up ramp that runs: the limit it climbs to, and when it is there (null until the first request). */
  ramp: { target: number; ends: number | null } | null;
  provider_cap: number;
  provider_in_flight: number;
  budgets: BudgetSnapshot[];
}

/** The state of a rate budget. */
export interface BudgetSnapshot {
  config: { dimension: BudgetDimension; limit: number; window: number; burst: number | null };
  /** The limit in force: the configured one, or a lower one that the provider named. */
  limit: number;
  /** What may be spent now; negative while it is overdrawn. */
  available: number;
  /** Estimates of calls that are out. */
  reserved: number;
}

/** What a budget counts. */
export type BudgetDimension = "requests" | "input_tokens" | "output_tokens" | "total_tokens";

/** Why a call may not go out. */
export type DenialReason =
  | "no_capacity"
  | "cooldown"
  | "budget_exhausted"
  | "queued_waiters_ahead"
  | "queue_timeout"
  | "cancelled"
  | "shutdown"
  | "unregistered";

/** What `acquire` rejects with and `tryAcquire` throws. */
export interface DeniedError extends Error {
  name: "DeniedError";
  reason: DenialReason;
  /** In how many milliseconds capacity is next known to change, if that is known. */
  changesInMs: number | undefined;
}

/** What became of a call. */
export type Outcome =
  | "success"
  | "rate_limited"
  | "provider_failure"
  | "provider_timeout"
  | "local_cancelled"
  | "local_timeout"
  | "unexpected";
