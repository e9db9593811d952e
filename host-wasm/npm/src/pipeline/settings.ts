import type { PipelineDraft } from "../wasm/tidegate.js";

/** Settings of a run. Each has a default; spans are milliseconds. */
export interface PipelineSettings {
  /** Rows per row group, 1 to 16777215; the last group takes what is left. A row group is saved as one. Default 64. */
  readonly rowGroupSize?: number;
  /** Row groups in work at once, at least 1: so many, or at most so many if `adaptive`. Default 3. */
  readonly rowGroups?: number;
  /** Lets a control loop choose how many row groups are in work, up to `rowGroups`. Default off. */
  readonly adaptive?: AdaptiveRowGroups;
  /** Tasks at work at once, over all columns, at least 1. Default 1024. */
  readonly workers?: number;
  /** When a fairness group may have more tasks at work than its share. Default `{ kind: "bounded_borrow" }`. */
  readonly policy?: Policy;
  /** Further named resources and their limits, for `holds` of a column. */
  readonly resources?: Readonly<Record<string, number>>;
  /** How often a task that failed for now is tried again, after 1, 2, 4, ... s, 0 to 255. Default 3. */
  readonly retries?: number;
  /** Final outcomes that are judged together, 1 to 65536. Default 10. */
  readonly shutdownWindow?: number;
  /** The share of failures in a full window at which the run stops, above 0 and at most 1; `null`: never. Default 0.5. */
  readonly shutdownRate?: number | null;
  /**
   * How long what a column calls may answer nothing but rate limits, before its tasks are kept for another run; `null`: for ever.
   * Default 600000.
   */
  readonly rateLimitPatienceMs?: number | null;
  /** Answers of one fairness group that are judged together for a warning, 1 to 65536. Default 20. */
  readonly degradedWindow?: number;
  /** The share of failures that may pass at which a provider counts as degraded, above 0 and at most 1; `null`: never. Default 0.5. */
  readonly degradedRate?: number | null;
  /** The shortest pause between two such warnings about one fairness group. Default 60000. */
  readonly degradedPauseMs?: number;
  /** The shortest pause before a rate-limited task is tried again, above 0. Default 50. */
  readonly retryFloorMs?: number;
  /** The longest such pause, whatever the provider asked for; not below `retryFloorMs`. Default 600000. */
  readonly retryCeilingMs?: number;
  /** Whether a task that waits for its call gives back its worker slot meanwhile. Default true. */
  readonly yieldWhileWaiting?: boolean;
  /** Row groups that an earlier run has saved, counted from 0: they are skipped and count as done. */
  readonly doneRowGroups?: Iterable<number>;
  /**
   * The rows to make of row groups that an earlier run has saved in part, with the run's numbers, ascending. A row group that has one
   * of them is of these rows alone.
   */
  readonly missingRows?: Iterable<number>;
}

/** Settings of the control loop over row groups. */
export interface AdaptiveRowGroups {
  /** Row groups to begin with, from 1 to `rowGroups`. Default 1. */
  readonly initial?: number;
  /** The most rows in work at once, at least 1; `null` is three row groups or 8192 rows, whichever is more. Default `null`. */
  readonly maxAdmittedRows?: number | null;
  /** Ticks of sustained pressure after which the target falls by one, at least 1. Default 64. */
  readonly shrinkAfter?: number;
}

/** When a fairness group may have more tasks at work than its share. */
export type Policy =
  /** Only while nobody else could start. */
  | { readonly kind: "strict_fair" }
  /** While nobody else wants the same, and as a debt. */
  | {
      readonly kind: "bounded_borrow";
      /** The most that a group may owe of a resource; `null`: what the limit leaves above its share. Default `null`. */
      readonly defaultCeiling?: number | null;
      /** The part of a limit that stays out of reach of borrowing, from 0 to 1. Default 0. */
      readonly reserveFraction?: number;
      /** The most that this part comes to, at least 1. Default 8. */
      readonly maxReserved?: number;
    };

/** A setting: its number in the module, and what it may be. */
interface Rule {
  readonly number: number;
  readonly least: number;
  readonly most: number;
  readonly whole: boolean;
  readonly above?: boolean;
  readonly off?: boolean;
}

const U32 = 4_294_967_295;
/** 292 years: as long a span as the clock has. */
const SPAN = 9e12;

const whole = (number: number, least: number, most = U32): Rule => ({ number, least, most, whole: true });
const span = (number: number): Rule => ({ number, least: 0, most: SPAN, whole: false });
const share = (number: number): Rule => ({ number, least: 0, most: 1, whole: false, above: true, off: true });

const RULES = {
  rowGroupSize: whole(0, 1, 16_777_215),
  rowGroups: whole(1, 1),
  workers: whole(2, 1),
  retries: whole(3, 0, 255),
  shutdownWindow: whole(4, 1, 65_536),
  shutdownRate: share(5),
  rateLimitPatienceMs: { ...span(6), off: true },
  degradedWindow: whole(7, 1, 65_536),
  degradedRate: share(8),
  degradedPauseMs: span(9),
  retryFloorMs: { ...span(10), above: true },
  retryCeilingMs: span(11),
} satisfies Record<string, Rule>;

const YIELD_WHILE_WAITING = 12;
export const PRE_BATCH = 13;
export const POST_BATCH = 14;

const ADAPTIVE_RULES = {
  initial: whole(15, 1),
  maxAdmittedRows: { ...whole(16, 1, Number.MAX_SAFE_INTEGER), off: true },
  shrinkAfter: whole(17, 1),
} satisfies Record<string, Rule>;

const STRICT_FAIR = 18;
const BORROW_RULES = {
  defaultCeiling: { ...whole(19, 0), off: true },
  reserveFraction: { number: 20, least: 0, most: 1, whole: false },
  maxReserved: whole(21, 1),
} satisfies Record<string, Rule>;

/** Refuses a value that is out of its range, by the setting's name. */
function check(name: string, value: unknown, rule: Rule): number {
  if (value === null && rule.off === true) return NaN;
  const inRange =
    typeof value === "number" &&
    value >= rule.least &&
    value <= rule.most &&
    (!rule.whole || Number.isInteger(value)) &&
    (rule.above !== true || value > rule.least);
  if (inRange) return value;
  const range = rule.above === true ? `above ${rule.least} and at most ${rule.most}` : `from ${rule.least} to ${rule.most}`;
  const what = `${rule.whole ? "a whole number" : "a number"} ${range}${rule.off === true ? ", or null" : ""}`;
  throw new RangeError(`\`${name}\` must be ${what}, not ${String(value)}`);
}

/** A whole number in a range, or an error that names the setting. */
export function wholeNumber(name: string, value: unknown, least: number, most = U32): number {
  return check(name, value, whole(0, least, most));
}

function apply(draft: PipelineDraft, prefix: string, given: object, rules: Readonly<Record<string, Rule>>): void {
  for (const [name, value] of Object.entries(given)) {
    const rule = rules[name];
    if (rule === undefined || value === undefined) continue;
    draft.set(rule.number, check(prefix + name, value, rule));
  }
}

function refuseUnknown(what: string, given: object, known: readonly string[]): void {
  const stranger = Object.keys(given).find((name) => !known.includes(name));
  if (stranger !== undefined) throw new RangeError(`${what} has no setting \`${stranger}\`; there are ${known.join(", ")}`);
}

const OTHERS = ["adaptive", "policy", "resources", "yieldWhileWaiting", "doneRowGroups", "missingRows"];
/** The names of all settings. */
export const SETTINGS: readonly string[] = [...Object.keys(RULES), ...OTHERS];

/** Checks the settings and hands them to the module. */
export function applySettings(draft: PipelineDraft, settings: PipelineSettings, known: readonly string[]): void {
  refuseUnknown("a pipeline", settings, known);
  apply(draft, "", settings, RULES);
  const { adaptive, policy, resources, yieldWhileWaiting, doneRowGroups, missingRows } = settings;
  if (yieldWhileWaiting !== undefined) draft.set(YIELD_WHILE_WAITING, yieldWhileWaiting ? 1 : 0);
  if (adaptive !== undefined) {
    refuseUnknown("`adaptive`", adaptive, Object.keys(ADAPTIVE_RULES));
    draft.set(ADAPTIVE_RULES.initial.number, 1);
    apply(draft, "adaptive.", adaptive, ADAPTIVE_RULES);
  }
  if (policy?.kind === "strict_fair") {
    draft.set(STRICT_FAIR, 1);
  } else if (policy?.kind === "bounded_borrow") {
    refuseUnknown("`policy`", policy, ["kind", ...Object.keys(BORROW_RULES)]);
    apply(draft, "policy.", policy, BORROW_RULES);
  } else if (policy !== undefined) {
    const { kind } = policy as { kind?: unknown };
    throw new RangeError(`\`policy.kind\` must be "strict_fair" or "bounded_borrow", not ${String(kind)}`);
  }
  for (const [name, limit] of Object.entries(resources ?? {})) {
    draft.resource(name, wholeNumber(`resources.${name}`, limit, 1));
  }
  for (const group of doneRowGroups ?? []) draft.done(wholeNumber("doneRowGroups", group, 0, 2 ** 28 - 1));
  for (const row of missingRows ?? []) draft.missing(wholeNumber("missingRows", row, 0, Number.MAX_SAFE_INTEGER));
}

/** The core's names of settings that have others here. */
const CORE_NAMES: Readonly<Record<string, string>> = {
  submission_limit: "workers",
  rate_limit_patience: "rateLimitPatienceMs",
  degraded_pause: "degradedPauseMs",
  retry_floor: "retryFloorMs",
  retry_ceiling: "retryCeilingMs",
  admitted_limit: "group.limit",
  weight: "group.weight",
};

/** An error of the core about settings together, in the words of this package. */
export function inOurWords(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  const named = error.message.replace(/`([a-z_.]+)`/g, (whole, name: string) => {
    const ours = CORE_NAMES[name] ?? (name.includes("_") ? name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()) : name);
    return KNOWN_NAMES.has(ours) ? `\`${ours}\`` : whole;
  });
  return new RangeError(named);
}

const KNOWN_NAMES: ReadonlySet<string> = new Set([
  ...SETTINGS,
  ...Object.keys(ADAPTIVE_RULES).map((name) => `adaptive.${name}`),
  "group.limit",
  "group.weight",
]);
