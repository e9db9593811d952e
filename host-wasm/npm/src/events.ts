/** What happened at a gate, as plain objects. */

import { type DenialReason, denialReason, known } from "./errors.js";
import type { ResourceRegistry } from "./gate/keys.js";
import { type BudgetDimension, DIMENSIONS } from "./gate/limits.js";
import { OUTCOMES, type Outcome } from "./outcome.js";
import { UNAVAILABLE_CAUSES, type UnavailableCause } from "./gate/state.js";

/** What every event has. */
export interface EventHead {
  /** Its number among the gate's events, from 0; a gap is an event that was lost. */
  readonly sequence: number;
  /** When it happened, on the clock of `performance.now()`. */
  readonly atMs: number;
  /**
   * What it is about: the name of a resource, or `provider/model` for all its domains; undefined for the
   * whole gate.
   */
  readonly key: string | undefined;
  /** The task of a pipeline whose call it is about; there is none for other calls. */
  readonly task?: CallingTask;
}

/** A task of a pipeline, as the events of the pipeline name it. */
export interface CallingTask {
  /** A number that the run was given when it began: by chance, so that runs are told apart. */
  readonly run: number;
  /** The row group, counted from 0 over the whole run. */
  readonly rowGroup: number;
  /** The column, counted from 0 in the order in which they were added. */
  readonly column: number;
  /** The row, counted from 0 within its row group; undefined for a task of the whole group. */
  readonly row: number | undefined;
  /** 1 for the first try. */
  readonly attempt: number;
}

/** What a release that released nothing was instead. */
export type ReleaseResult = "released" | "duplicate" | "stale" | "unknown_lease" | "wrong_controller";

/**
 * What goes with each kind of event. Spans are in milliseconds, `waiter` and `lease` are numbers that name
 * one call that waits and one permit among those that are out.
 */
export interface EventFacts {
  /** A model was registered, with this cap. */
  resource_registered: { readonly cap: number };
  /** The cap of a model changed; `from` is undefined for a new one. */
  effective_cap_changed: { readonly from: number | undefined; readonly to: number };
  /** The first call came into an empty queue. */
  queue_formed: object;
  /** The last call left the queue. */
  queue_drained: object;
  /** A call asked; `waiter` if it had to queue. */
  wait_started: { readonly waiter: number | undefined };
  /**
   * A call was let out. `waitedMs` is 0 for one without a timeout that came while nobody listened; so it is
   * below.
   */
  wait_completed: { readonly waiter: number | undefined; readonly waitedMs: number };
  /** A call waited for as long as it might. */
  wait_timeout: { readonly waiter: number | undefined; readonly waitedMs: number };
  /** A call withdrew, or was turned away by `shutdown()`. */
  wait_cancelled: { readonly waiter: number; readonly waitedMs: number; readonly reason: DenialReason };
  /**
   * A call was refused at once. `changesAtMs` is when capacity next changes by time alone, on the clock of
   * `atMs`, if that is known.
   */
  acquire_denied: { readonly reason: DenialReason; readonly changesAtMs: number | undefined };
  /** A call may go out: the limit it was admitted under, and how many are out now. */
  lease_acquired: { readonly lease: number; readonly limit: number; readonly inFlight: number };
  /** A call goes out. */
  call_started: { readonly lease: number };
  /** A call came back, or was given up; `tookMs` is 0 if nobody wanted events when it began. */
  call_completed: { readonly lease: number; readonly outcome: Outcome; readonly tookMs: number };
  /** A slot is free again; `heldMs` is 0 if nobody wanted events when it was taken. */
  lease_released: {
    readonly lease: number;
    readonly outcome: Outcome;
    readonly heldMs: number;
    readonly inFlight: number;
  };
  /** A release that released nothing. */
  release_diagnostic: { readonly lease: number; readonly answer: ReleaseResult };
  /** The provider refused; until when nothing goes out, on the clock of `atMs`. */
  rate_limited: { readonly blockedUntilMs: number | undefined; readonly consecutive: number };
  /** A pause that the provider asked for was cut to the longest allowed. */
  cooldown_capped: { readonly requestedMs: number; readonly appliedMs: number };
  /** The limit fell. */
  limit_decreased: { readonly from: number; readonly to: number };
  /** The limit rose. */
  limit_increased: { readonly from: number; readonly to: number };
  /** The limit passed the one that the first cut had found too high. */
  soft_ceiling_recovered: { readonly limit: number };
  /** The limit is at its maximum again, and no pause is in force. */
  fully_recovered: { readonly limit: number };
  /** A ramp opened slots. */
  ramp_step: { readonly from: number; readonly to: number };
  /** A refusal ended a ramp at this limit. */
  ramp_aborted: { readonly limit: number };
  /** What the provider said about a budget changed what may be spent. */
  budget_corrected: { readonly dimension: BudgetDimension; readonly before: number; readonly after: number };
  /**
   * An answer stated a rate of the provider that was not known before: so much in each window. Calls are
   * paced to it.
   */
  rate_learned: { readonly dimension: BudgetDimension; readonly limit: number; readonly windowMs: number };
  /** The provider is down, or still: its first failure and the next probe, on the clock of `atMs`. */
  provider_down: { readonly sinceMs: number; readonly probeAtMs: number };
  /** The one call goes out that finds out whether the provider is back. */
  provider_probed: { readonly lease: number };
  /**
   * The provider is back, which failed first then; limits have climbed to what they were at `fullAtMs`. On
   * the clock of `atMs`.
   */
  provider_recovered: { readonly sinceMs: number; readonly fullAtMs: number };
  /**
   * Calls to the provider are denied, until one call finds out whether it can be used again: when, on the
   * clock of `atMs`.
   */
  provider_unavailable: { readonly cause: UnavailableCause; readonly probeAtMs: number | undefined };
  /**
   * A warning: the body of an answer was not read for `idleMs`, and gave its slot back. It has the number of
   * the event before it, for it is no decision of the gate's.
   */
  body_left_unread: { readonly idleMs: number };
}

/** The kinds of events. */
export type GateEventKind = keyof EventFacts;

/** One event of a gate: its `kind` says what else it has. */
export type GateEvent = { [Kind in GateEventKind]: EventHead & { readonly kind: Kind } & Readonly<EventFacts[Kind]> }[GateEventKind];

/** How one number of an event is read. */
type Read = (value: number) => unknown;

const plain: Read = (value) => value;
const maybe: Read = (value) => known(value);
const outcome: Read = (value) => OUTCOMES[value];
const reason: Read = (value) => denialReason(value);
const dimension: Read = (value) => DIMENSIONS[value];
const cause: Read = (value) => UNAVAILABLE_CAUSES[value];
const answer: Read = (value) => ["released", "duplicate", "stale", "unknown_lease", "wrong_controller"][value];

type Fields = readonly (readonly [name: string, read: Read])[];

const FROM_TO: Fields = [["from", plain], ["to", plain]];
const LIMIT: Fields = [["limit", plain]];

/** In the order of the core, each with its numbers in the order in which they come. */
const KINDS: readonly (readonly [kind: GateEventKind, fields: Fields])[] = [
  ["resource_registered", [["cap", plain]]],
  ["effective_cap_changed", [["from", maybe], ["to", plain]]],
  ["queue_formed", []],
  ["queue_drained", []],
  ["wait_started", [["waiter", maybe]]],
  ["wait_completed", [["waiter", maybe], ["waitedMs", plain]]],
  ["wait_timeout", [["waiter", maybe], ["waitedMs", plain]]],
  ["wait_cancelled", [["waiter", plain], ["waitedMs", plain], ["reason", reason]]],
  ["acquire_denied", [["reason", reason], ["changesAtMs", maybe]]],
  ["lease_acquired", [["lease", plain], ["limit", plain], ["inFlight", plain]]],
  ["call_started", [["lease", plain]]],
  ["call_completed", [["lease", plain], ["outcome", outcome], ["tookMs", plain]]],
  ["lease_released", [["lease", plain], ["outcome", outcome], ["heldMs", plain], ["inFlight", plain]]],
  ["release_diagnostic", [["lease", plain], ["answer", answer]]],
  ["rate_limited", [["blockedUntilMs", maybe], ["consecutive", plain]]],
  ["cooldown_capped", [["requestedMs", plain], ["appliedMs", plain]]],
  ["limit_decreased", FROM_TO],
  ["limit_increased", FROM_TO],
  ["soft_ceiling_recovered", LIMIT],
  ["fully_recovered", LIMIT],
  ["ramp_step", FROM_TO],
  ["ramp_aborted", LIMIT],
  ["budget_corrected", [["dimension", dimension], ["before", plain], ["after", plain]]],
  ["rate_learned", [["dimension", dimension], ["limit", plain], ["windowMs", plain]]],
  ["provider_down", [["sinceMs", plain], ["probeAtMs", plain]]],
  ["provider_probed", [["lease", plain]]],
  ["provider_recovered", [["sinceMs", plain], ["fullAtMs", plain]]],
  ["provider_unavailable", [["cause", cause], ["probeAtMs", maybe]]],
  // Not of the core: told by this package.
  ["body_left_unread", []],
];

/** The kinds of events that there are. */
export const GATE_EVENT_KINDS: readonly GateEventKind[] = KINDS.map(([kind]) => kind);

/** @internal A bit for each kind. */
export function bitsOf(kinds: readonly GateEventKind[]): number {
  let bits = 0;
  for (const kind of kinds) {
    const place = GATE_EVENT_KINDS.indexOf(kind);
    if (place < 0) throw new TypeError(`no event is called "${kind}"; there are ${GATE_EVENT_KINDS.join(", ")}`);
    bits |= 1 << place;
  }
  return bits;
}

/** How many numbers come before those of the kind, the task's being the last. */
const HEAD = 9;

/** @internal The event of these numbers; undefined for a kind that is not known here. */
export function readEvent(numbers: Float64Array, registry: ResourceRegistry): GateEvent | undefined {
  const [number = 0, sequence = 0, atMs = 0, place = -1] = numbers;
  const found = KINDS[number];
  if (found === undefined) return undefined;
  const [kind, fields] = found;
  const key = place >= 0 ? registry.resource(place)?.name : place < -1 ? registry.model(-2 - place) : undefined;
  const task = taskOf(numbers);
  const event: Record<string, unknown> = { kind, sequence, atMs, key, ...(task && { task }) };
  fields.forEach(([name, read], at) => (event[name] = read(numbers[HEAD + at] ?? NaN)));
  // The table says for each kind what its type says.
  return event as unknown as GateEvent;
}

function taskOf(numbers: Float64Array): CallingTask | undefined {
  const [run = NaN, rowGroup = 0, column = 0, row = NaN, attempt = 0] = numbers.subarray(4, HEAD);
  return Number.isNaN(run) ? undefined : { run, rowGroup, column, row: known(row), attempt };
}

interface Listener {
  readonly notify: (event: GateEvent) => void;
  readonly bits: number;
  hasFailed: boolean;
}

/** @internal Those who want to hear of a gate's events. */
export class Listeners {
  readonly #all = new Set<Listener>();
  #latest = 0;

  /** Tells of what is no event of the core. */
  emitOwn<Kind extends GateEventKind>(kind: Kind, key: string, facts: EventFacts[Kind]): void {
    if (this.#all.size === 0) return;
    // The facts are those of the kind.
    const event = { kind, sequence: this.#latest, atMs: performance.now(), key, ...facts } as unknown as GateEvent;
    this.emit(event);
  }

  /** Adds one; the returned function takes it away again. */
  add(notify: (event: GateEvent) => void, bits: number): () => void {
    const listener = { notify, bits, hasFailed: false };
    this.#all.add(listener);
    return () => void this.#all.delete(listener);
  }

  /** The kinds that anybody wants. */
  get bits(): number {
    let bits = 0;
    for (const listener of this.#all) bits |= listener.bits;
    return bits;
  }

  /** Tells whoever wants it. One that throws is reported once, and disturbs nobody. */
  emit(event: GateEvent): void {
    const bit = bitsOf([event.kind]);
    this.#latest = event.sequence;
    for (const listener of [...this.#all]) {
      if ((listener.bits & bit) === 0 || !this.#all.has(listener)) continue;
      try {
        listener.notify(event);
      } catch (error) {
        if (!listener.hasFailed) console.error("tidegate: a listener threw; further errors of it are not shown.", error);
        listener.hasFailed = true;
      }
    }
  }

  clear(): void {
    this.#all.clear();
  }
}
