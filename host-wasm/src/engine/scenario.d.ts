/** Milliseconds of virtual time, whole or decimal, from 0 to 365 days. */
export type Millis = number;

/** Nanoseconds of virtual time, a whole number: an instant counts from the start of the run. */
export type Nanos = number;

/** A run to simulate. Only the fields without `?` are required; an unknown field is an error. */
export interface Scenario {
  /** Short name, as in a command line. */
  name: string;
  /** A headline. */
  title: string;
  /** What it shows, in a sentence or two. */
  description: string;
  /** The number of rows. */
  rows: number;
  /** Rows in a row group. */
  row_group_size: number;
  /** Row groups in work at once: so many, or at most so many if `adaptive`. */
  row_groups: number;
  /** Workers at once. */
  submission_limit: number;
  /** Models, each with the provider that serves it. */
  models?: Model[];
  /** Further resources that tasks hold while they run, with their limits [none]. */
  resources?: Record<string, number>;
  /** Columns, in any order. */
  columns: ScenarioColumn[];
  /** When a fairness group may start more workers than its share [bounded borrowing]. */
  policy?: PolicyChoice;
  /** Lets a control loop choose how many row groups are in work [no]. */
  adaptive?: AdaptiveRowGroups | null;
  /** Whether tasks that would only wait for a model are passed over while others could call at once [yes]. */
  advisory?: boolean;
  /** Whether a worker that waits for a model releases its task resources [yes]. */
  yields?: boolean;
  /** How often a task with a retryable failure is retried, after 1, 2, 4, ... s, 0 to 255 [3]. */
  retries?: number;
  /** Final outcomes that are judged together, 1 to 65536 [10]. */
  shutdown_window?: number;
  /** The share of failures in a full window at which the run stops, above 0 and at most 1 [0.5]. */
  shutdown_rate?: number | "never";
  /**
   * How long a model may rate limit every call before the run stops without the rows that need it [10 min].
   */
  rate_limit_patience_ms?: Millis | "never";
  /** How long a model may be down before the run stops without the rows that need it [10 min]. */
  outage_patience_ms?: Millis | "never";
  /** How long after it became unavailable a model is probed again, above 0 [never]. */
  recheck_ms?: Millis | null;
  /** Whether the health calls that admission requests are made [no]. */
  health_calls?: boolean;
  /** Responses of one fairness group that are considered for a warning, 1 to 65536 [20]. */
  degraded_window?: number;
  /** The share of retryable failures at which a provider counts as degraded [0.5]. */
  degraded_rate?: number | "never";
  /** The shortest pause between two such warnings about one fairness group [60 s]. */
  degraded_pause_ms?: Millis;
  /** The shortest pause before a rate-limited task is tried again, above 0 [50 ms]. */
  retry_floor_ms?: Millis;
  /** The longest such pause, whatever the provider asked for [10 min]. */
  retry_ceiling_ms?: Millis;
  /** Row groups that an earlier run has saved [none]. */
  done_row_groups?: number[];
  /** The rows to complete in row groups that an earlier run has saved in part, as ascending ranges. */
  missing_rows?: { start: number; end: number }[];
  /** What the hook after the seeds does [there is none]. */
  pre_batch?: PreBatch | null;
  /** What the hook before the checkpoint does [there is none]. */
  post_batch?: Answering | null;
  /** How row groups are saved [at once, and it works]. */
  checkpoint?: Answering;
  /** When the run is wound down: it finishes what it has admitted, and admits no more [never]. */
  wind_down_at_ms?: Millis | null;
  /** When the run is drained: calls in flight finish, and none starts [never]. */
  drain_at_ms?: Millis | null;
  /** When the run is cancelled [never]. */
  cancel_at_ms?: Millis | null;
  /** Other callers of the same models [none]. */
  holders?: Holder[];
  /** Changes during the run, in order of time [none]. */
  changes?: Change[];
}

/** A model and the mock provider behind it. */
export interface Model {
  /** The provider's name, unique within the scenario. */
  name: string;
  /** How the provider behaves. */
  provider: ProviderSpec;
  /** The cap the model is registered with. */
  max_parallel: number;
  /** Settings of the adaptive limit: all of them for AIMD, the ramp, cooldowns and `max_limit` for any. */
  request?: AimdConfig;
  /** The algorithm that sets the limit [AIMD, by `request`]. */
  algorithm?: LimitChoice;
  /**
   * Workers at once whose columns call it, those that wait for it included, at least 1 [twice
   * `max_parallel`].
   */
  task_limit?: number | null;
}

/** Settings of the additive-increase, multiplicative-decrease limit of one resource. */
export interface AimdConfig {
  /** The limit to start at [the effective maximum]. */
  initial_limit?: number | null;
  /** A maximum below the provider's cap [none]. */
  max_limit?: number | null;
  /** The factor of a decrease, rounded down, 0.01 to 0.99 [0.75]. */
  decrease_factor?: number;
  /** What an increase adds, at least 1 [1]. */
  increase_step?: number;
  /** Successes outside a cooldown that earn an increase, at least 1 [25]. */
  successes_until_increase?: number;
  /** No increase while the limit was not reached since it last changed [no]. */
  grow_on_evidence?: boolean;
  /**
   * How many milliseconds a rate limit without Retry-After blocks the resource, under `tide` at most [2000].
   */
  cooldown_ms?: number;
  /** The longest a single answer may block the resource, at least `cooldown_ms` [600 000]. */
  max_cooldown_ms?: number;
  /**
   * How long a new resource takes to climb from 1 to its initial limit, or under another algorithm to its
   * maximum; 0 is off [0].
   */
  ramp_ms?: number;
  /** Ramp again, from half the limit, when the resource was idle for longer than this [off]. */
  ramp_after_idle_ms?: number | null;
  /** Which rate limits cause a decrease [`granted_after_last_cut`]. */
  cut_rule?: "granted_after_last_cut" | "admitted_limit";
  /** Which cooldown holds [`longest`]. */
  cooldown_rule?: "longest" | "latest";
}

/** The algorithm that sets the limit of a resource. */
export type LimitChoice =
  /** Additive increase, multiplicative decrease, by the resource's own settings. */
  | { name: "aimd" }
  /** By latency: queued calls below `alpha` let the limit grow, above `beta` let it shrink. */
  | { name: "vegas"; initial_limit?: number; alpha?: number; beta?: number; windows_until_relearned?: number }
  /** Learns the capacity from rate limits and latency. */
  | {
      name: "tide";
      initial_limit?: number;
      probe_after?: number;
      probe_after_most?: number;
      /** What a Retry-After stops [`learned`]. */
      retry_after?: "learned" | "resource" | "call";
      decrease_factor?: number;
      longest_pause_ms?: number;
      latency_tolerance?: number;
    }
  /** A constant limit. */
  | { name: "fixed"; limit: number };

/** When a fairness group may start more workers than its share. */
export type PolicyChoice =
  /** Only while no other group could start a task. */
  | "strict_fair"
  /** While no other group needs the same resource, and as a debt. */
  | { bounded_borrow: BoundedBorrowConfig };

/** Settings of bounded borrowing. */
export interface BoundedBorrowConfig {
  /** The most that a group may owe of a resource, for some of them [none]. */
  ceilings?: { kind: GroupKind; identity: string[]; resource: string; ceiling: number }[];
  /** The most that any other group may owe of a resource [what the limit leaves above the share]. */
  default_ceiling?: number | null;
  /** The part of a limit that stays out of reach of borrowing, 0 to 1 [0]. */
  reserve_fraction?: number;
  /** The most that this part comes to, at least 1 [8]. */
  max_reserved?: number;
  /** How a share that is no whole number is rounded [`up`]. */
  share_rounding?: "up" | "down";
  /** Whether a release repays the group's debt [yes]. */
  repays_on_release?: boolean;
}

/** Settings of the control loop over row groups. */
export interface AdaptiveRowGroups {
  /** Row groups to begin with [1]. */
  initial?: number;
  /** The most rows in work at once [three row groups or 8192 rows, whichever is more]. */
  max_admitted_rows?: number | null;
  /** Ticks of sustained pressure after which the target falls by one [64]. */
  shrink_after?: number;
}

/**
 * The tasks of a column: one for each row group, one for each row group once its upstreams are complete, or
 * one for each row.
 */
export type Strategy = "from_scratch" | "full_column" | "cell";

/** What a fairness group's tasks do. */
export type GroupKind = "model" | "custom_model" | "local";

/** A column of the simulated table. Each share is the chance of one task. */
export interface ScenarioColumn {
  name: string;
  strategy: Strategy;
  /** The columns it needs. */
  after?: string[];
  /** Further columns that the same generator fills. */
  also_fills?: string[];
  /** The model it calls [local work]. */
  model?: string | null;
  /**
   * The models that it calls instead while the ones before are down, unavailable, or have answered nothing
   * but rate limits for 30 s [none].
   */
  fallbacks?: string[];
  /** Calls that each task makes, one after another, 0 to 10000 [1]. */
  calls?: number;
  /** Tokens that a call costs at its provider [0]. */
  tokens?: number;
  /** What each task holds while it runs, besides a place of its model. */
  holds?: Record<string, number>;
  /** Its fairness group [its own]. */
  group?: string | null;
  /** What its tasks count as [`model` if it calls one, else `local`]. */
  kind?: GroupKind | null;
  /** Its group's weight [1]. */
  weight?: number;
  /**
   * Leases its group may hold while other groups have ready tasks [the task limit of its model; unbounded
   * without one].
   */
  admitted_limit?: number | null;
  /** How long local work takes [0]. */
  local_ms?: Millis;
  /** Whether its tasks run one at a time, in the order of the rows [no]. */
  ordered?: boolean;
  /** Whether it is skipped where an upstream is [no]. */
  skips_with_upstream?: boolean;
  /** The share of tasks that its condition skips, in every try [0]. */
  skip_share?: number;
  /** The share of attempts that fail for good once their work is done [0]. */
  fail_share?: number;
  /** The share of attempts whose worker is lost once their work is done [0]. */
  lose_share?: number;
  /** The row of the run, counted from 0, whose task meets a bug [none]. */
  fatal_at?: number | null;
}

/** A mock provider. */
export interface ProviderSpec {
  /** How many calls at once it can serve [8]. */
  capacity?: Capacity;
  /** What it does with more [429 without Retry-After]. */
  overload?: Overload;
  /** How long a call takes that has a slot [100 ms]. */
  latency?: Latency;
  /** Calls per minute [unlimited]. */
  requests?: Rate | null;
  /** Tokens of text per minute [unlimited]. */
  tokens?: Rate | null;
  /**
   * In each period at most `growth` times as many calls as in the one before, or `least` [never refuses for
   * that].
   */
  surge?: { period_ms: Millis; growth: number; least: number; retry_after_ms?: Millis | null } | null;
  /** Another client that takes a varying share of the capacity [none]. */
  neighbour?: { low_share: number; high_share: number; period_ms: Millis } | null;
  /** Outages in order of time, none overlapping [none]. */
  outages?: Outage[];
  /** Times in which it rejects every call, in order, none overlapping [none]. */
  closures?: Closure[];
  /** Faults of single calls [none]. */
  faults?: Faults | null;
}

/** A provider's capacity over time, in calls at once. */
export type Capacity =
  | { shape: "constant"; slots: number }
  /** A cold server that opens one slot after another. */
  | { shape: "warm_up"; slots: number; warm_up_ms: Millis }
  | { shape: "steps"; slots: number; steps: { at_ms: Millis; slots: number }[] }
  | { shape: "drift"; from: number; to: number; over_ms: Millis; back_and_forth?: boolean };

/** The answer to a call beyond the capacity: a 429, or more time for every call. */
export type Overload =
  | { response: "refuse"; retry_after_ms?: Millis | null }
  | { response: "slow_down"; slope?: number };

/** A law that latencies are drawn from. */
export type Latency =
  | { law: "constant"; latency_ms: Millis }
  | { law: "uniform"; low_ms: Millis; high_ms: Millis }
  | { law: "log_normal"; median_ms: Millis; sigma: number; tail?: { probability: number; factor: number } | null };

/** So many per minute, saved up to a burst [a minute's worth], or counted in windows of `window_ms`. */
export interface Rate {
  per_minute: number;
  burst?: number | null;
  window_ms?: Millis | null;
  /** The Retry-After of a rate limit ["exact"]. */
  retry_after?: "exact" | "seconds" | "never";
}

/**
 * A revoked key, an exhausted account or a model that does not exist: every call is rejected, for a time or
 * forever.
 */
export interface Closure {
  starts_at_ms: Millis;
  lasts_ms?: Millis | null;
  because: "key_rejected" | "quota_exhausted" | "model_not_found";
}

/** Errors, then silence, then a recovery in which the capacity comes back. */
export interface Outage {
  starts_at_ms: Millis;
  errors_ms?: Millis;
  status?: number;
  error_latency_ms?: Millis;
  timeouts_ms?: Millis;
  hang_ms?: Millis;
  recovery_ms?: Millis;
}

/** Faults that befall single calls; the shares add up to 1 or less. */
export interface Faults {
  error_share?: number;
  error_status?: number;
  error_latency_ms?: Millis;
  hang_share?: number;
  hang_ms?: Millis;
  cut_share?: number;
  malformed_share?: number;
  /** Refused with 429 whatever the load. */
  refused_share?: number;
  retry_after_ms?: Millis | null;
}

/** How a hook or a checkpoint answers. */
export interface Answering {
  takes_ms?: Millis;
  /** The row group for which it fails [none]. */
  fails_at?: number | null;
}

/** How the hook after the seeds answers. */
export interface PreBatch extends Answering {
  /** The share of rows that it leaves out [0]. */
  leaves_out_share?: number;
}

/** A client outside the run that holds request slots of a model for a while. */
export interface Holder {
  model: string;
  slots: number;
  from_ms?: Millis;
  until_ms: Millis;
}

/** A change during a run. */
export type Intervention =
  /** A model's true capacity from now on; `"schedule"` gives it back to the scenario. */
  | { set: "capacity"; model: string; slots?: number | "schedule" }
  /** A burst of 429: every call in that time is rejected. */
  | { set: "refuse"; model: string; for_ms: Millis }
  /** A slow phase: calls that arrive in that time take so many times longer. */
  | { set: "slow"; model: string; factor: number; for_ms: Millis }
  /** The algorithm that sets a model's limit from now on. */
  | { set: "algorithm"; model: string; algorithm: LimitChoice }
  /** The AIMD settings and the ramp of a model; a changed ramp begins anew. */
  | { set: "request"; model: string; request: AimdConfig }
  /** The task policy. */
  | { set: "policy"; policy: PolicyChoice }
  /** The weight of a column's fairness group. */
  | { set: "weight"; column: string; weight: number }
  /** A model's cap, up or down. */
  | { set: "max_parallel"; model: string; calls: number };

/** An intervention and its time: it precedes everything else at that time. */
export type Change = { at_ms: Millis } & Intervention;
