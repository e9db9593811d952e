import { FAILURE_KINDS, type FailureKind, RETRY_KINDS, type RetryKind } from "./outcomes.js";
import { BLOCKS, DISCARDS, type DiscardReason, type DropReason, dropReason, type Hook, type RowGroupBlock, type Stop } from "./report.js";

/** How a task ended. */
export type TaskEnd =
  | { readonly outcome: "success" | "skipped" | "cancelled" | "unavailable" | "fatal" }
  | { readonly outcome: "retryable"; readonly kind: RetryKind }
  | { readonly outcome: "failed"; readonly kind: FailureKind };

/** Why a call of a task would have to wait. `paced`: the limit spaces calls in time, and fewer are out than it allows. */
export type Pressure = "cap_reached" | "cooling_down" | "waiters" | "limit_reached" | "paced" | "outage";

/** Why a ready task may not start. */
export type TaskDenial = "no_capacity" | "group_cap" | "borrow_debt" | "shutdown" | "policy";

/** What an event of each kind says beside what all say. `resource` counts the resources of the task stage; 0 is `workers`. */
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
  /** A provider mostly fails, though not for good; `retryable_failures` follow. `resource` is what its tasks hold, if they hold any. */
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
  /** A task is kept, to be tried again: not before `untilMs`, in the salvage round of that number or (null) at that instant. */
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
   * Failures that may pass, of one kind and HTTP status: how many of the last answers, and in all. After `health_snapshot` those of the
   * whole run, after `provider_degraded` those of that provider.
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

/** Reads the numbers of one kind's facts. */
type Reading<Facts> = (numbers: readonly number[]) => Facts;

const STOPS = [
  "completed",
  "wound_down",
  "cancelled",
  "early_shutdown",
  "checkpoint_failed",
  "hook_failed",
  "fatal",
  "stuck",
  "provider_unavailable",
  "drained",
] as const satisfies readonly Stop["reason"][];
const DENIALS = ["no_capacity", "group_cap", "borrow_debt", "shutdown", "policy"] as const satisfies readonly TaskDenial[];
const PRESSURES = ["cap_reached", "cooling_down", "waiters", "limit_reached", "paced", "outage"] as const satisfies readonly Pressure[];

const at = (numbers: readonly number[], place: number): number => numbers[place] ?? NaN;
const some = (number: number | undefined): number | null => (number === undefined || Number.isNaN(number) ? null : number);
const named = <Name>(names: readonly Name[], index: number | undefined, otherwise: Name): Name => names[index ?? -1] ?? otherwise;

const nothing = (): object => ({});
const queued: Reading<{ queued: number }> = (of) => ({ queued: at(of, 0) });
const active: Reading<{ active: number }> = (of) => ({ active: at(of, 0) });
const worker: Reading<{ worker: number }> = (of) => ({ worker: at(of, 0) });
const dropped: Reading<{ reason: DropReason; rows: number }> = (of) => ({ reason: dropReason(at(of, 0)), rows: at(of, 1) });

/** The kinds in the order of their numbers. */
const READINGS: { readonly [Kind in PipelineEventKind]: Reading<PipelineEventFacts[Kind]> } = {
  job_started: (of) => ({ rows: at(of, 0), rowGroups: at(of, 1), resumed: at(of, 2) }),
  job_stopping: (of) => ({ stop: named(STOPS, of[0], "stuck"), aborts: of[1] === 1 }),
  job_completed: (of) => ({ stop: named(STOPS, of[0], "stuck"), rowsOut: at(of, 1), rowsDropped: at(of, 2), rowsUnmade: at(of, 3) }),
  health_snapshot: (of) => ({
    running: at(of, 0),
    queued: at(of, 1),
    delayed: at(of, 2),
    rowGroupsActive: at(of, 3),
    rowGroupsDone: at(of, 4),
    rowsOut: at(of, 5),
    rowsDropped: at(of, 6),
    rowsUnmade: at(of, 7),
  }),
  dependency_ready: nothing,
  ready_enqueued: queued,
  row_group_admitted: (of) => ({ rows: at(of, 0), active: at(of, 1) }),
  row_group_admission_blocked: (of) => ({ reason: named<RowGroupBlock>(BLOCKS, of[0], "at_cap") }),
  row_group_target_changed: (of) => ({ from: at(of, 0), to: at(of, 1) }),
  row_group_checkpointed: (of) => ({ rows: at(of, 0), unmade: at(of, 1) }),
  row_group_discarded: (of) => ({ reason: named<DiscardReason>(DISCARDS, of[0], "stopped"), rows: at(of, 1) }),
  hook_failed: (of) => ({ hook: of[0] === 0 ? "pre_batch" : "post_batch" }),
  early_shutdown: (of) => ({ failures: at(of, 0), window: at(of, 1) }),
  provider_degraded: (of) => ({ retryable: at(of, 0), window: at(of, 1), resource: some(of[2]) }),
  liveness_override: nothing,
  selected: queued,
  queue_empty: nothing,
  admission_blocked: (of) => ({ reason: named<TaskDenial>(DENIALS, of[0], "policy"), resource: some(of[1]), queued: at(of, 2) }),
  group_capped: (of) => ({ resource: some(of[0]) }),
  pressure_advisory_skipped: (of) => ({ pressure: named<Pressure>(PRESSURES, of[0], "waiters") }),
  task_lease_acquired: active,
  admission_denied: (of) => ({ reason: named<TaskDenial>(DENIALS, of[0], "policy"), resource: some(of[1]) }),
  worker_spawned: worker,
  worker_spawn_failed: worker,
  stale_selection: nothing,
  task_yielded: worker,
  task_resumed: worker,
  retry_deferred: (of) => ({ failure: RETRY_KINDS[at(of, 0)] ?? null, untilMs: at(of, 1), round: some(of[2]) }),
  non_retryable_dropped: dropped,
  cancelled: (of) => ({ queued: of[0] === 1 }),
  salvage_redispatched: nothing,
  queue_drained: (of) => ({ discarded: at(of, 0) }),
  task_completed: (of) => ({ worker: at(of, 0), end: taskEnd(at(of, 1)) }),
  task_lease_released: active,
  release_diagnostic: worker,
  retryable_failures: (of) => ({
    resource: some(of[0]),
    failure: RETRY_KINDS[at(of, 1)] ?? "server_error",
    status: some(of[2]),
    recent: at(of, 3),
    total: at(of, 4),
  }),
};

/** The kinds of events, in the order of their numbers. */
export const PIPELINE_EVENT_KINDS = Object.keys(READINGS) as readonly PipelineEventKind[];

function taskEnd(code: number): TaskEnd {
  if (code >= 64) return { outcome: "fatal" };
  if (code >= 32) return { outcome: "failed", kind: FAILURE_KINDS[code - 32] ?? "other" };
  if (code >= 16) return { outcome: "retryable", kind: RETRY_KINDS[code - 16] ?? "server_error" };
  return { outcome: (["success", "skipped", "cancelled", "unavailable"] as const)[code] ?? "cancelled" };
}

/** The two halves of the bits for these kinds. */
export function bitsOf(kinds: Iterable<PipelineEventKind>): readonly [low: number, high: number] {
  let [low, high] = [0, 0];
  for (const kind of kinds) {
    const index = PIPELINE_EVENT_KINDS.indexOf(kind);
    if (index < 0) throw new RangeError(`there are no events of kind \`${kind}\`; there are ${PIPELINE_EVENT_KINDS.join(", ")}`);
    if (index < 32) low |= 1 << index;
    else high |= 1 << (index - 32);
  }
  return [low >>> 0, high >>> 0];
}

/** The event of that kind and those numbers, if this package knows the kind. */
export function readEvent(kind: number, numbers: Float64Array, columns: readonly string[]): PipelineEvent | undefined {
  const name = PIPELINE_EVENT_KINDS[kind];
  if (name === undefined) return undefined;
  const all = Array.from(numbers);
  const head = {
    kind: name,
    sequence: at(all, 0),
    atMs: at(all, 1),
    rowGroup: some(all[2]),
    column: columns[at(all, 3)] ?? null,
    row: some(all[4]),
    attempt: some(all[5]),
  };
  // The table has a reading for each kind; that head and facts are of the same one, TypeScript cannot follow.
  return { ...head, ...READINGS[name](all.slice(6)) } as PipelineEvent;
}
