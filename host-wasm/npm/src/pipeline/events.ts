import type {
  DiscardReason,
  DropReason,
  FailureKind,
  Hook,
  Pressure,
  RetryKind,
  RowGroupBlock,
  Stop,
  TaskDenial,
} from "../wasm/tidegate.js";
import { SCHEDULER_EVENT_KINDS } from "../wasm/tidegate_names.js";

/** How a task ended. */
export type TaskEnd =
  | { readonly outcome: "success" | "skipped" | "cancelled" | "unavailable" | "fatal" }
  | { readonly outcome: "retryable"; readonly kind: RetryKind }
  | { readonly outcome: "failed"; readonly kind: FailureKind };

/**
 * The fields of each kind of event besides the common ones. `resource` is the index of a task resource; 0 is
 * `workers`.
 */
export interface PipelineEventFacts {
  /** The run started. */
  job_started: { readonly rows: number; readonly rowGroups: number; readonly resumed: number };
  /** The run stops before all rows are complete. Emitted again when a stop becomes stricter. */
  job_stopping: { readonly stop: Stop["reason"]; readonly aborts: boolean };
  /** The run ended. */
  job_completed: { readonly stop: Stop["reason"]; readonly rowsOut: number; readonly rowsDropped: number; readonly rowsUnmade: number };
  /** The progress of the run. Emitted after each row group. */
  health_snapshot: {
    readonly running: number;
    readonly queued: number;
    readonly delayed: number;
    readonly rowGroupsActive: number;
    readonly rowGroupsDone: number;
    readonly rowsOut: number;
    readonly rowsDropped: number;
    readonly rowsUnmade: number;
  };
  /** All upstreams of a task are complete. */
  dependency_ready: object;
  /** A task entered the queue. */
  ready_enqueued: { readonly queued: number };
  /** A row group was started. */
  row_group_admitted: { readonly rows: number; readonly active: number };
  /** No further row group is started, for a different reason than before. */
  row_group_admission_blocked: { readonly reason: RowGroupBlock };
  /** The control loop changed the target number of row groups. */
  row_group_target_changed: { readonly from: number; readonly to: number };
  /**
   * A row group was saved and released. `unmade` counts its rows that the run did not complete before it
   * stopped.
   */
  row_group_checkpointed: { readonly rows: number; readonly unmade: number };
  /** A row group was discarded: this run does not save it. */
  row_group_discarded: { readonly reason: DiscardReason; readonly rows: number };
  /** A hook failed. Its message is in the report. */
  hook_failed: { readonly hook: Hook };
  /** The run stops itself: too many of the latest final outcomes were failures. */
  early_shutdown: { readonly failures: number; readonly window: number };
  /**
   * Most calls to a provider fail in ways that can pass. Events `retryable_failures` follow. `resource` is
   * the task resource that its tasks hold, if any.
   */
  provider_degraded: { readonly retryable: number; readonly window: number; readonly resource: number | null };
  /** A task starts against the policy, because nothing else runs. */
  liveness_override: object;
  /** A task was selected to start. */
  selected: { readonly queued: number };
  /** No queued task can be selected. */
  queue_empty: object;
  /** Tasks are queued, and none can start. */
  admission_blocked: { readonly reason: TaskDenial; readonly resource: number | null; readonly queued: number };
  /** A task cannot start because its group is at its limit, while another group has tasks that could. */
  group_capped: { readonly resource: number | null };
  /** A task was skipped, because its call would only wait. */
  pressure_advisory_skipped: { readonly pressure: Pressure };
  /** A task acquired all resources that its column requires. */
  task_lease_acquired: { readonly active: number };
  /** A selected task cannot start. */
  admission_denied: { readonly reason: TaskDenial; readonly resource: number | null };
  /** A task was started. */
  worker_spawned: { readonly worker: number };
  /** A task could not be started. */
  worker_spawn_failed: { readonly worker: number };
  /** An internal error: a task that no longer exists was selected. */
  stale_selection: object;
  /** A task released its worker slot while it waits for a call. */
  task_yielded: { readonly worker: number };
  /** A task that had yielded resumes. */
  task_resumed: { readonly worker: number };
  /**
   * A task will be retried: not before `untilMs`, in the salvage round of that number, or (null) at that
   * time.
   */
  retry_deferred: { readonly failure: RetryKind | null; readonly untilMs: number; readonly round: number | null };
  /** Rows were dropped because of a task. */
  non_retryable_dropped: { readonly reason: DropReason; readonly rows: number };
  /** A task was cancelled by a stop or by the drop of its row. */
  cancelled: { readonly queued: boolean };
  /** A task kept for a salvage round is retried. */
  salvage_redispatched: object;
  /** The last task left the queue. */
  queue_drained: { readonly discarded: number };
  /** A task ended. */
  task_completed: { readonly worker: number; readonly end: TaskEnd };
  /** A task released its resources. */
  task_lease_released: { readonly active: number };
  /** An internal error: an outcome was reported for a task that does not run. */
  release_diagnostic: { readonly worker: number };
  /**
   * Retryable failures of one kind and HTTP status: how many of the recent responses, and in total. After
   * `health_snapshot` they cover the whole run, after `provider_degraded` one provider.
   */
  retryable_failures: {
    readonly resource: number | null;
    readonly failure: RetryKind;
    readonly status: number | null;
    readonly recent: number;
    readonly total: number;
  };
}

/** The kinds of events. */
export type PipelineEventKind = keyof PipelineEventFacts;

/** The fields of every event. Fields that do not apply are `null`. */
export interface PipelineEventHead<Kind extends PipelineEventKind> {
  readonly kind: Kind;
  /**
   * Its number among the run's events, from 0. A gap is an event that was lost because events were read too
   * late.
   */
  readonly sequence: number;
  /** The time of the event, on the clock of `performance.now()`. */
  readonly atMs: number;
  /** The row group, counted from 0 over the whole run. */
  readonly rowGroup: number | null;
  readonly column: string | null;
  /** The row, counted from 0 within its row group. */
  readonly row: number | null;
  /** The current or last attempt. */
  readonly attempt: number | null;
}

/** An event of one kind. */
export type PipelineEventOf<Kind extends PipelineEventKind> = Kind extends PipelineEventKind ? PipelineEventHead<Kind> & PipelineEventFacts[Kind] : never;

/** An event of a run. */
export type PipelineEvent = PipelineEventOf<PipelineEventKind>;

/** The kinds of events. */
export const PIPELINE_EVENT_KINDS: readonly PipelineEventKind[] = SCHEDULER_EVENT_KINDS;

/** An event as JSON from the core: a head, a correlation, and the fields of its kind. */
interface CoreEvent {
  readonly kind: PipelineEventKind;
  readonly sequence: number;
  readonly at: number;
  readonly correlation: { readonly row_group?: number; readonly column?: number; readonly row?: number; readonly attempt?: number };
  readonly [fact: string]: unknown;
}

const millis = (nanos: number): number => nanos / 1e6;
const camelCase = (name: string): string => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());

/** Conversions of fields that have another name or shape here, by their name in the core. */
const FACTS: { readonly [name: string]: (value: never) => object } = {
  worker: ({ slot, generation }: { slot: number; generation: number }) => ({ worker: generation * 2 ** 32 + slot }),
  until: (nanos: number) => ({ untilMs: millis(nanos) }),
  reason: (reason: string | Record<string, string>) => ({ reason: typeof reason === "string" ? reason : variant(reason, "reason") }),
  outcome: (outcome: string | null | Record<string, string | { kind: string }>) => ({ end: taskEnd(outcome) }),
  // The policies of this package are built in. A panic in one is a defect, like being stuck.
  stop: (stop: string) => ({ stop: stop === "policy_panicked" ? "stuck" : stop }),
  // Identifiers that only the core uses.
  lease: () => ({}),
  preferred: () => ({}),
  answer: () => ({}),
};

/** Flattens an object with one entry: `{ failed: "other" }` becomes `{ reason: "failed", kind: "other" }`. */
function variant(of: Record<string, string | { kind: string }>, tag: string): object {
  const [[name, value] = []] = Object.entries(of);
  return { [tag]: name, kind: typeof value === "object" ? value.kind : value };
}

function taskEnd(outcome: string | null | Record<string, string | { kind: string }>): object {
  if (outcome === null) return { outcome: "fatal" };
  return typeof outcome === "string" ? { outcome } : variant(outcome, "outcome");
}

/** Converts an event of the core. */
export function readEvent(event: unknown, columns: readonly string[]): PipelineEvent {
  const { kind, sequence, at, correlation, ...facts } = event as CoreEvent;
  const read: Record<string, unknown> = {
    kind,
    sequence,
    atMs: millis(at),
    rowGroup: correlation.row_group ?? null,
    column: columns[correlation.column ?? -1] ?? null,
    row: correlation.row ?? null,
    attempt: correlation.attempt ?? null,
  };
  for (const [name, value] of Object.entries(facts)) {
    Object.assign(read, FACTS[name]?.(value as never) ?? { [camelCase(name)]: value });
  }
  // The core omits a missing status, and writes a reason without a kind as a string.
  if (kind === "retryable_failures") read["status"] ??= null;
  if (kind === "non_retryable_dropped" && typeof read["reason"] === "string") read["reason"] = { reason: read["reason"] };
  // The core guarantees that the fields belong to the kind.
  return read as unknown as PipelineEvent;
}
