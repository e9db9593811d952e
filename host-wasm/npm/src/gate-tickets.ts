/**
 * Who waits for which answer.
 *
 * The wasm module names every call by a ticket, a small number that is used again. A call leaves a {@link Waiter} here under its
 * ticket. Answers are taken up in one go, right after the command that brought them; who was answered is told in one turn of its
 * own, later, so whoever is called may do anything.
 */

import { DeniedError, denialReason, known } from "./errors.js";
import type { Resource } from "./gate-keys.js";
import {
  cancel,
  denialChangesInMs,
  denialReason as latestReason,
  finish,
  nextNews,
  onTurn,
} from "./wasm/tidegate_live.js";

/** The wasm module's "no ticket" and "no more news": the smallest number of 32 bits. */
export const NONE = -(2 ** 31);

/** A call that has asked. It is told of its answer once, and throws nothing. */
export abstract class Waiter {
  readonly resource: Resource;
  /** The caller's signal. */
  readonly outer: AbortSignal | undefined;
  /** What listens to it. */
  onAbort: (() => void) | undefined = undefined;
  /** That of its permit, while it has one. */
  ticket = NONE;

  constructor(resource: Resource, outer: AbortSignal | null | undefined) {
    this.resource = resource;
    this.outer = outer ?? undefined;
  }

  /** It may go out, with its ticket. */
  abstract granted(): void;

  /** It may not. */
  abstract refused(error: unknown): void;
}

/** Those that wait, by ticket. */
const waiters: (Waiter | undefined)[] = [];

/** Those that have a permit and are not told yet. */
let ready: Waiter[] = [];

/** What follows it has a turn of its own: as `queueMicrotask` does it, for which Node makes three objects more. */
const settled = Promise.resolve();

/** The denial that the wasm module has just answered. */
export function latestDenial(resource: Resource): DeniedError {
  return new DeniedError(resource.name, denialReason(latestReason()), known(denialChangesInMs()));
}

/** Puts a call where it belongs by the answer to its `acquire`. */
export function enter(waiter: Waiter, answer: number): void {
  if (answer >= 0) return makeReady(waiter, answer);
  if (answer === NONE) return waiter.refused(latestDenial(waiter.resource));
  const ticket = ~answer;
  waiters[ticket] = waiter;
  const { outer } = waiter;
  if (outer !== undefined) {
    waiter.onAbort = () => leave(ticket, outer.reason);
    outer.addEventListener("abort", waiter.onAbort, { once: true });
  }
}

/** Takes up the answers that are there, `count` of them at most. */
export function deliver(count = Infinity): void {
  for (let left = count; left > 0; left -= 1) {
    const news = nextNews();
    if (news === NONE) return;
    const ticket = news < 0 ? ~news : news;
    const waiter = waiters[ticket];
    waiters[ticket] = undefined;
    if (waiter === undefined) continue;
    stopListening(waiter);
    if (news < 0) waiter.refused(latestDenial(waiter.resource));
    else makeReady(waiter, ticket);
  }
}

function makeReady(waiter: Waiter, ticket: number): void {
  waiter.ticket = ticket;
  if (ready.push(waiter) === 1) void settled.then(tellReady);
}

function tellReady(): void {
  const those = ready;
  ready = [];
  for (const waiter of those) {
    try {
      tell(waiter);
    } catch (error) {
      // It is this caller's own, and the others are still to be told.
      if (waiter.ticket !== NONE) giveUp(waiter.ticket);
      waiter.refused(error);
    }
  }
}

function tell(waiter: Waiter): void {
  const { outer } = waiter;
  if (outer === undefined || !outer.aborted) return waiter.granted();
  const { ticket } = waiter;
  waiter.ticket = NONE;
  giveUp(ticket);
  waiter.refused(outer.reason);
}

function stopListening({ outer, onAbort }: Waiter): void {
  if (outer && onAbort) outer.removeEventListener("abort", onAbort);
}

/** A call leaves the queue, and is told why. */
function leave(ticket: number, reason: unknown): void {
  const waiter = waiters[ticket];
  waiters[ticket] = undefined;
  if (waiter === undefined) return;
  giveUp(ticket);
  waiter.refused(reason);
}

/** Gives a ticket up: a call that waits leaves the queue, a permit goes back as local cancelled. */
export function giveUp(ticket: number): void {
  const news = cancel(ticket);
  if (news > 0) deliver(news);
  changed();
}

/** Ends the call of a ticket; `retryAfterMs` is NaN for none, `input` below 0 for what is not known. */
export function finishAs(ticket: number, outcome: number, retryAfterMs: number, input: number, output: number): void {
  const news = finish(ticket, outcome, retryAfterMs, input, output);
  if (news > 0) deliver(news);
  changed();
}

/** Who is to be called after anything may have happened. */
const watchers = new Set<() => void>();

/** Calls `watcher` in a turn of its own after anything may have happened; until the returned function is called. */
export function watch(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => void watchers.delete(watcher);
}

/** After each command: whoever watches is to hear of what it did. */
export function changed(): void {
  if (watchers.size > 0) soon();
}

let isAsked = false;

/** Asks for a turn in which answers and events are handed on. */
function soon(): void {
  if (isAsked) return;
  isAsked = true;
  void settled.then(() => {
    isAsked = false;
    deliver();
    for (const watcher of [...watchers]) watcher();
  });
}

let isBound = false;

/** Makes the wasm module announce what happens in its own turns. Called once it is loaded. */
export function bind(): void {
  if (isBound) return;
  isBound = true;
  onTurn(soon);
}
