/**
 * Who waits for which answer.
 *
 * The wasm module names every call by a ticket, a small number that is used again. A call that waits leaves its promise here
 * under its ticket. Answers are taken up in one go, after the command that brought them; promises hand them on in
 * turns of their own, so whoever is called may do anything.
 */

import { DeniedError, denialReason, known } from "./errors.js";
import type { Resource } from "./gate-keys.js";
import { cancel, denialChangesInMs, denialReason as latestReason, nextNews, onTurn } from "./wasm/tidegate_live.js";

/** The wasm module's "no ticket" and "no more news": the smallest number of 32 bits. */
export const NONE = -(2 ** 31);

interface Waiter {
  readonly resource: Resource;
  readonly resolve: (ticket: number) => void;
  readonly reject: (error: unknown) => void;
  readonly signal: AbortSignal | undefined;
  readonly onAbort: (() => void) | undefined;
}

/** By ticket. */
const waiters: (Waiter | undefined)[] = [];

/** The denial that the wasm module has just answered. */
export function latestDenial(resource: Resource): DeniedError {
  return new DeniedError(resource.name, denialReason(latestReason()), known(denialChangesInMs()));
}

/** Takes up all answers that are there. */
export function deliver(): void {
  for (let news = nextNews(); news !== NONE; news = nextNews()) {
    const ticket = news < 0 ? ~news : news;
    const waiter = waiters[ticket];
    waiters[ticket] = undefined;
    if (waiter === undefined) continue;
    stopListening(waiter);
    if (news < 0) waiter.reject(latestDenial(waiter.resource));
    else waiter.resolve(ticket);
  }
}

/** Waits for the answer to a ticket. Rejects with the signal's reason as soon as that is aborted. */
export function wait(ticket: number, resource: Resource, signal: AbortSignal | undefined): Promise<number> {
  return new Promise((resolve, reject) => {
    const onAbort = signal && (() => leave(ticket, signal.reason));
    waiters[ticket] = { resource, resolve, reject, signal, onAbort };
    if (signal && onAbort) signal.addEventListener("abort", onAbort, { once: true });
  });
}

function stopListening({ signal, onAbort }: Waiter): void {
  if (signal && onAbort) signal.removeEventListener("abort", onAbort);
}

/** A call leaves the queue, and its promise is rejected with `reason`. */
function leave(ticket: number, reason: unknown): void {
  const waiter = waiters[ticket];
  waiters[ticket] = undefined;
  if (waiter === undefined) return;
  stopListening(waiter);
  const news = cancel(ticket);
  waiter.reject(reason);
  if (news > 0) deliver();
}

/** What has to happen after turns of the wasm module: listeners may want to hear of them. */
const watchers = new Set<() => void>();

/** Calls `watcher` in a turn of its own after anything may have happened; until the returned function is called. */
export function watch(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => void watchers.delete(watcher);
}

let isAsked = false;

/** Asks for a turn in which answers and events are handed on. */
export function soon(): void {
  if (isAsked) return;
  isAsked = true;
  queueMicrotask(() => {
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
