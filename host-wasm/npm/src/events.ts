/** The events of a gate, as plain objects. */

import { type DenialReason, denialReason, known } from "./errors.js";
import type { ResourceRegistry } from "./gate/keys.js";
import type { BudgetDimension } from "./gate/limits.js";
import type { Outcome } from "./outcome.js";
import type { ReleaseResult, UnavailableCause } from "./wasm/tidegate.js";
import {
  DIMENSIONS,
  OUTCOMES,
  RELEASE_RESULTS,
  REQUEST_EVENT_KINDS,
  type RequestEventKind,
  UNAVAILABLE_CAUSES,
} from "./wasm/tidegate_names.js";

export type { ReleaseResult } from "./wasm/tidegate.js";

/** The fields of every event. */
export interface EventHead {
  /** Its number among the gate's events, from 0. A gap is a lost event. */
  readonly sequence: number;
  /** The time of the event, on the clock of `performance.now()`. */
  readonly atMs: number;
  /**
   * The name of a resource, or `provider/model` for all domains of a model; undefined for an event of the
   * whole gate.
   */
  readonly key: string | undefined;
  /** The pipeline task that makes the call; absent for other calls. */
  readonly task?: CallingTask;
}

/** A pipeline task, numbered as in the events of the pipeline. */
export interface CallingTask {
  /** A random number that identifies the run. */
  readonly run: number;
  /** The row group, counted from 0 over the whole run. */
  readonly rowGroup: number;
  /** The column, counted from 0 in the order in which columns were added. */
  readonly column: number;
  /** The row, counted from 0 within its row group; undefined for a task of the whole group. */
  readonly row: number | undefined;
  /** 1 for the first attempt. */
  readonly attempt: number;
}

/**
 * The fields of each kind of event. Durations are in milliseconds. `waiter` identifies a waiting call, and
 * `lease` a permit in use.
 */
export interface EventFacts {
  /** A model was registered with this cap. */
  resource_registered: { readonly cap: number };
  /** The cap of a model changed. `from` is undefined for a new model. */
  effective_cap_changed: { readonly from: number | undefined; readonly to: number };
  /** A call entered an empty queue. */
  queue_formed: object;
  /** The last call left the queue. */
  queue_drained: object;
  /** A call requested a permit. `waiter` is set if it entered the queue. */
  wait_started: { readonly waiter: number | undefined };
  /**
   * A permit was granted. Here and below, `waitedMs` is 0 for a call without a timeout that arrived while
   * nothing listened to events.
   */
  wait_completed: { readonly waiter: number | undefined; readonly waitedMs: number };
  /** The timeout of a waiting call passed. */
  wait_timeout: { readonly waiter: number | undefined; readonly waitedMs: number };
  /** A waiting call was cancelled, or was rejected by `shutdown()`. */
  wait_cancelled: { readonly waiter: number; readonly waitedMs: number; readonly reason: DenialReason };
  /**
   * A call was denied at once. `changesAtMs` is when capacity next changes without a call ending, on the
   * clock of `atMs`; undefined if that is not known.
   */
  acquire_denied: { readonly reason: DenialReason; readonly changesAtMs: number | undefined };
  /** A permit was granted: the limit in force, and the number of calls in flight now. */
  lease_acquired: { readonly lease: number; readonly limit: number; readonly inFlight: number };
  /** A call starts. */
  call_started: { readonly lease: number };
  /** A call ended or was cancelled. `tookMs` is 0 if nothing listened to events when it started. */
  call_completed: { readonly lease: number; readonly outcome: Outcome; readonly tookMs: number };
  /** A slot was released. `heldMs` is 0 if nothing listened to events when it was taken. */
  lease_released: {
    readonly lease: number;
    readonly outcome: Outcome;
    readonly heldMs: number;
    readonly inFlight: number;
  };
  /** A release had no effect. */
  release_diagnostic: { readonly lease: number; readonly answer: ReleaseResult };
  /**
   * The provider rate limited a call. `blockedUntilMs` is the end of the cooldown, on the clock of `atMs`.
   */
  rate_limited: { readonly blockedUntilMs: number | undefined; readonly consecutive: number };
  /** A cooldown that the provider asked for was reduced to the longest allowed. */
  cooldown_capped: { readonly requestedMs: number; readonly appliedMs: number };
  /** The limit decreased. */
  limit_decreased: { readonly from: number; readonly to: number };
  /** The limit increased. */
  limit_increased: { readonly from: number; readonly to: number };
  /** The limit exceeded the one at which the first decrease happened. */
  soft_ceiling_recovered: { readonly limit: number };
  /** The limit is back at its maximum, and no cooldown is in force. */
  fully_recovered: { readonly limit: number };
  /** A ramp increased the limit. */
  ramp_step: { readonly from: number; readonly to: number };
  /** A rate-limited call ended a ramp at this limit. */
  ramp_aborted: { readonly limit: number };
  /** A response header changed what may be spent of a budget. */
  budget_corrected: { readonly dimension: BudgetDimension; readonly before: number; readonly after: number };
  /** A response stated a rate that was not known before: `limit` in each window. Calls are paced to it. */
  rate_learned: { readonly dimension: BudgetDimension; readonly limit: number; readonly windowMs: number };
  /**
   * The provider is down, or a probe failed. The times of its first failure and of the next probe, on the
   * clock of `atMs`.
   */
  provider_down: { readonly sinceMs: number; readonly probeAtMs: number };
  /** A probe starts: the one call that tests whether the provider is back. */
  provider_probed: { readonly lease: number };
  /**
   * The provider is back. Its first failure was at `sinceMs`, and limits reach their former values at
   * `fullAtMs`, on the clock of `atMs`.
   */
  provider_recovered: { readonly sinceMs: number; readonly fullAtMs: number };
  /**
   * Calls to the provider are denied until a probe succeeds. `probeAtMs` is the time of the probe, on the
   * clock of `atMs`.
   */
  provider_unavailable: { readonly cause: UnavailableCause; readonly probeAtMs: number | undefined };
  /**
   * A warning: the body of a response was not read for `idleMs` and released its slot. This event is not a
   * decision of the gate, and has the sequence number of the event before it.
   */
  body_left_unread: { readonly idleMs: number };
}

/** The kinds of events. */
export type GateEventKind = keyof EventFacts;

/** One event of a gate. Its `kind` determines its other fields. */
export type GateEvent = { [Kind in GateEventKind]: EventHead & { readonly kind: Kind } & Readonly<EventFacts[Kind]> }[GateEventKind];

/** Converts one number of an event to a field. */
type Read = (value: number) => unknown;

const plain: Read = (value) => value;
const maybe: Read = (value) => known(value);
const outcome: Read = (value) => OUTCOMES[value];
const reason: Read = (value) => denialReason(value);
const dimension: Read = (value) => DIMENSIONS[value];
const cause: Read = (value) => UNAVAILABLE_CAUSES[value];
const answer: Read = (value) => RELEASE_RESULTS[value];

type Fields<Kind extends GateEventKind> = readonly (readonly [name: keyof EventFacts[Kind], read: Read])[];

const FROM_TO = [["from", plain], ["to", plain]] as const;
const LIMIT = [["limit", plain]] as const;

/** The fields of each kind in the order of their numbers, which `gate/events.rs` writes. */
const FIELDS: { readonly [Kind in RequestEventKind | "body_left_unread"]: Fields<Kind> } = {
  resource_registered: [["cap", plain]],
  effective_cap_changed: [["from", maybe], ["to", plain]],
  queue_formed: [],
  queue_drained: [],
  wait_started: [["waiter", maybe]],
  wait_completed: [["waiter", maybe], ["waitedMs", plain]],
  wait_timeout: [["waiter", maybe], ["waitedMs", plain]],
  wait_cancelled: [["waiter", plain], ["waitedMs", plain], ["reason", reason]],
  acquire_denied: [["reason", reason], ["changesAtMs", maybe]],
  lease_acquired: [["lease", plain], ["limit", plain], ["inFlight", plain]],
  call_started: [["lease", plain]],
  call_completed: [["lease", plain], ["outcome", outcome], ["tookMs", plain]],
  lease_released: [["lease", plain], ["outcome", outcome], ["heldMs", plain], ["inFlight", plain]],
  release_diagnostic: [["lease", plain], ["answer", answer]],
  rate_limited: [["blockedUntilMs", maybe], ["consecutive", plain]],
  cooldown_capped: [["requestedMs", plain], ["appliedMs", plain]],
  limit_decreased: FROM_TO,
  limit_increased: FROM_TO,
  soft_ceiling_recovered: LIMIT,
  fully_recovered: LIMIT,
  ramp_step: FROM_TO,
  ramp_aborted: LIMIT,
  budget_corrected: [["dimension", dimension], ["before", plain], ["after", plain]],
  rate_learned: [["dimension", dimension], ["limit", plain], ["windowMs", plain]],
  provider_down: [["sinceMs", plain], ["probeAtMs", plain]],
  provider_probed: [["lease", plain]],
  provider_recovered: [["sinceMs", plain], ["fullAtMs", plain]],
  provider_unavailable: [["cause", cause], ["probeAtMs", maybe]],
  // Emitted by this package, not by the core.
  body_left_unread: [],
};

/** All kinds of events. */
export const GATE_EVENT_KINDS: readonly GateEventKind[] = [...REQUEST_EVENT_KINDS, "body_left_unread"];

/** @internal Returns a bit mask of the kinds. */
export function bitsOf(kinds: readonly GateEventKind[]): number {
  let bits = 0;
  for (const kind of kinds) {
    const place = GATE_EVENT_KINDS.indexOf(kind);
    if (place < 0) throw new TypeError(`no event is called "${kind}"; there are ${GATE_EVENT_KINDS.join(", ")}`);
    bits |= 1 << place;
  }
  return bits;
}

/** The number of values before those of the kind. The values of the task are the last of them. */
const HEAD = 9;

/** @internal Returns the event encoded in these numbers; undefined for an unknown kind. */
export function readEvent(numbers: Float64Array, registry: ResourceRegistry): GateEvent | undefined {
  const [number = 0, sequence = 0, atMs = 0, place = -1] = numbers;
  const kind = REQUEST_EVENT_KINDS[number];
  if (kind === undefined) return undefined;
  const key = place >= 0 ? registry.resource(place)?.name : place < -1 ? registry.model(-2 - place) : undefined;
  const task = taskOf(numbers);
  const event: Record<string, unknown> = { kind, sequence, atMs, key, ...(task && { task }) };
  FIELDS[kind].forEach(([name, read], at) => (event[name] = read(numbers[HEAD + at] ?? NaN)));
  // `FIELDS` lists the fields of each kind as its type declares them.
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

/** @internal The listeners of a gate's events. */
export class Listeners {
  readonly #all = new Set<Listener>();
  #latest = 0;

  /** Emits an event of this package. */
  emitOwn<Kind extends GateEventKind>(kind: Kind, key: string, facts: EventFacts[Kind]): void {
    if (this.#all.size === 0) return;
    // The parameters make the fields match the kind.
    const event = { kind, sequence: this.#latest, atMs: performance.now(), key, ...facts } as unknown as GateEvent;
    this.emit(event);
  }

  /** Adds a listener. The returned function removes it. */
  add(notify: (event: GateEvent) => void, bits: number): () => void {
    const listener = { notify, bits, hasFailed: false };
    this.#all.add(listener);
    return () => void this.#all.delete(listener);
  }

  /** The kinds that have a listener. */
  get bits(): number {
    let bits = 0;
    for (const listener of this.#all) bits |= listener.bits;
    return bits;
  }

  /**
   * Calls the listeners of the event's kind. The first error of a listener is logged; the other listeners are
   * still called.
   */
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
