import type { DropReason, FailureKind, Hook, RetryKind, RowGroupBlock, Stop } from "../wasm/tidegate.js";
import type { DiscardReason } from "./report.js";

/** How a task ended. */
export type TaskEnd =
  | { readonly outcome: "success" | "skipped" | "cancelled" | "unavailable" | "fatal" }
  | { readonly outcome: "retryable"; readonly kind: RetryKind }
  | { readonly outcome: "failed"; readonly kind: FailureKind };

/**
 * Why a call of a task would have to wait. `paced`: the limit spaces calls in time, and fewer are out than it
 * allows.
 */
export type Pressure = "cap_reached" | "cooling_down" | "waiters" | "limit_reached" | "paced" | "outage";

/** Why a ready task may not start. */
export type TaskDenial = "no_capacity" | "group_cap" | "borrow_debt" | "shutdown" | "policy";

/**
 * What an event of each kind says beside what all say. `resource` counts the resources of the task stage; 0
 * is `workers`.
 */
export interface PipelineEventFacts {
  /** The run began. */
  job_started: { readonly rows: number; readonly rowGroups: number; readonly resumed: number };
  /** The run stops before everything is made; told again when a stop becomes stricter. */
  job_stopping: { readonly stop: Stop["reason"]; readonly aborts: boolean };
  /** The run is over. */
  job_completed: { readonly stop: Stop["reason"]; readonly rowsOut: number; readonly rowsDropped: number; readonly rowsUnmade: number };
  /** Where the run stands: told whenever a row group has left. */
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
  /** A task waits for no upstream any more. */
  dependency_ready: object;
  /** A task came into the queue. */
  ready_enqueued: { readonly queued: number };
  /** A row group was begun. */
  row_group_admitted: { readonly rows: number; readonly active: number };
  /** No further row group is begun, for another reason than before. */
  row_group_admission_blocked: { readonly reason: RowGroupBlock };
  /** The control loop wants another number of row groups. */
  row_group_target_changed: { readonly from: number; readonly to: number };
  /** A row group was saved, and is gone; `unmade`: the rows of it that the run stopped before. */
  row_group_checkpointed: { readonly rows: number; readonly unmade: number };
  /** A row group was not saved, and never will be by this run. */
  row_group_discarded: { readonly reason: DiscardReason; readonly rows: number };
  /** A hook failed. Its words are in the report. */
  hook_failed: { readonly hook: Hook };
  /** The run stops itself: too many of the latest final outcomes were failures. */
  early_shutdown: { readonly failures: number; readonly window: number };
  /**
   * A provider mostly fails, though not for good; `retryable_failures` follow. `resource` is what its tasks
   * hold, if they hold any.
   */
  provider_degraded: { readonly retryable: number; readonly window: number; readonly resource: number | null };
  /** A task is about to be started against the policy, because nothing runs. */
  liveness_override: object;
  /** A task's turn came. */
  selected: { readonly queued: number };
  /** Nothing is queued any more that could be selected. */
  queue_empty: object;
  /** Tasks are queued and none may start. */
  admission_blocked: { readonly reason: TaskDenial; readonly resource: number | null; readonly queued: number };
  /** A task may not start, because its group is at its limit while another could. */
  group_capped: { readonly resource: number | null };
  /** A task was passed over, because its call would only wait. */
  pressure_advisory_skipped: { readonly pressure: Pressure };
  /** A task holds all that its column demands. */
  task_lease_acquired: { readonly active: number };
  /** A task may not start, though its turn came. */
  admission_denied: { readonly reason: TaskDenial; readonly resource: number | null };
  /** A task is begun. */
  worker_spawned: { readonly worker: number };
  /** A task could not be begun. */
  worker_spawn_failed: { readonly worker: number };
  /** An internal error: a task was selected that had gone by then. */
  stale_selection: object;
  /** A task gave its worker slot back while it waits for a call. */
  task_yielded: { readonly worker: number };
  /** A task that had yielded goes on. */
  task_resumed: { readonly worker: number };
  /**
   * A task is kept, to be tried again: not before `untilMs`, in the salvage round of that number or (null) at
   * that instant.
   */
  retry_deferred: { readonly failure: RetryKind | null; readonly untilMs: number; readonly round: number | null };
  /** Rows were given up because of a task. */
  non_retryable_dropped: { readonly reason: DropReason; readonly rows: number };
  /** A task is not made: a stop, or the drop of its row, came first. */
  cancelled: { readonly queued: boolean };
  /** A task that was kept is tried again. */
  salvage_redispatched: object;
  /** The last task left the queue. */
  queue_drained: { readonly discarded: number };
  /** A task ended. */
  task_completed: { readonly worker: number; readonly end: TaskEnd };
  /** What a task held is free again. */
  task_lease_released: { readonly active: number };
  /** An internal error: a task was answered for that does not run. */
  release_diagnostic: { readonly worker: number };
  /**
   * Failures that may pass, of one kind and HTTP status: how many of the last answers, and in all. After
   * `health_snapshot` those of the whole run, after `provider_degraded` those of that provider.
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

/** What every event says. What does not apply is `null`. */
export interface PipelineEventHead<Kind extends PipelineEventKind> {
  readonly kind: Kind;
  /** Its number among the run's events, from 0; a gap is an event that was not taken in time. */
  readonly sequence: number;
  /** When it happened, as `performance.now()` counts. */
  readonly atMs: number;
  /** The row group, counted from 0 over the whole run. */
  readonly rowGroup: number | null;
  readonly column: string | null;
  /** The row, counted from 0 within its row group. */
  readonly row: number | null;
  /** The try that is under way, or was last. */
  readonly attempt: number | null;
}

/** An event of one kind. */
export type PipelineEventOf<Kind extends PipelineEventKind> = Kind extends PipelineEventKind ? PipelineEventHead<Kind> & PipelineEventFacts[Kind] : never;

/** An event of a run. */
export type PipelineEvent = PipelineEventOf<PipelineEventKind>;

/** The kinds of events. */
export const PIPELINE_EVENT_KINDS: readonly PipelineEventKind[] = [
  "job_started",
  "job_stopping",
  "job_completed",
  "health_snapshot",
  "dependency_ready",
  "ready_enqueued",
  "row_group_admitted",
  "row_group_admission_blocked",
  "row_group_target_changed",
  "row_group_checkpointed",
  "row_group_discarded",
  "hook_failed",
  "early_shutdown",
  "provider_degraded",
  "liveness_override",
  "selected",
  "queue_empty",
  "admission_blocked",
  "group_capped",
  "pressure_advisory_skipped",
  "task_lease_acquired",
  "admission_denied",
  "worker_spawned",
  "worker_spawn_failed",
  "stale_selection",
  "task_yielded",
  "task_resumed",
  "retry_deferred",
  "non_retryable_dropped",
  "cancelled",
  "salvage_redispatched",
  "queue_drained",
  "task_completed",
  "task_lease_released",
  "release_diagnostic",
  "retryable_failures",
];

/** An event in the JSON of the core: a head, what it is about, and what goes with its kind. */
interface CoreEvent {
  readonly kind: PipelineEventKind;
  readonly sequence: number;
  readonly at: number;
  readonly correlation: { readonly row_group?: number; readonly column?: number; readonly row?: number; readonly attempt?: number };
  readonly [fact: string]: unknown;
}

const millis = (nanos: number): number => nanos / 1e6;
const camelCase = (name: string): string => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());

/** The facts that have another name or shape here, by the name that the core has for them. */
const FACTS: { readonly [name: string]: (value: never) => object } = {
  worker: ({ slot, generation }: { slot: number; generation: number }) => ({ worker: generation * 2 ** 32 + slot }),
  until: (nanos: number) => ({ untilMs: millis(nanos) }),
  reason: (reason: string | Record<string, string>) => ({ reason: typeof reason === "string" ? reason : variant(reason, "reason") }),
  outcome: (outcome: string | null | Record<string, string | { kind: string }>) => ({ end: taskEnd(outcome) }),
  // A policy of this package cannot panic on its own account: it is a defect, as being stuck is.
  stop: (stop: string) => ({ stop: stop === "policy_panicked" ? "stuck" : stop }),
  // Names of the core's own.
  lease: () => ({}),
  preferred: () => ({}),
  answer: () => ({}),
};

/** The one entry of an object: `{ failed: "other" }` is `{ reason: "failed", kind: "other" }`. */
function variant(of: Record<string, string | { kind: string }>, tag: string): object {
  const [[name, value] = []] = Object.entries(of);
  return { [tag]: name, kind: typeof value === "object" ? value.kind : value };
}

function taskEnd(outcome: string | null | Record<string, string | { kind: string }>): object {
  if (outcome === null) return { outcome: "fatal" };
  return typeof outcome === "string" ? { outcome } : variant(outcome, "outcome");
}

/** Reads an event of the core. */
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
  // The core leaves out a status that there is none of, and writes a reason without a kind as a word.
  if (kind === "retryable_failures") read["status"] ??= null;
  if (kind === "non_retryable_dropped" && typeof read["reason"] === "string") read["reason"] = { reason: read["reason"] };
  // That head and facts are of the same kind is the core's promise.
  return read as unknown as PipelineEvent;
}
