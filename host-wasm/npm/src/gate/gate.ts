/// <reference lib="esnext.disposable" preserve="true" />
/** Request admission for real calls. */

import { currentModule } from "../core.js";
import { DeniedError, FreedError, anyNumber, onlyKnown, shown, spanMs, text, whole } from "../errors.js";
import { bitsOf, GATE_EVENT_KINDS, type GateEvent, type GateEventKind, Listeners, readEvent } from "../events.js";
import { AcquireQueue } from "./acquire_queue.js";
import type { Call } from "./call.js";
import { fetchUnder } from "./fetching.js";
import { ResourceRegistry, inspect, type Key, readKey, type Resource } from "./keys.js";
import type { GateOptions, Limits } from "./limits.js";
import {
  ACQUIRE_NAMES,
  type AcquireOptions,
  FETCH_NAMES,
  type FetchOptions,
  HELD_NAMES,
  LIMIT_NAMES,
  type LimitFunction,
  type LimitOptions,
  NO_OPTIONS,
  taskBinding,
  type BoundOptions,
  RUN_NAMES,
  type RunOptions,
  type SubscribeOptions,
  TRY_NAMES,
} from "./options.js";
import { Acquiring, dispose, Permit } from "./permit.js";
import { retryStateOf } from "./retries.js";
import { Running, runUntilFinal } from "./running.js";
import { shareLimit, type SharedLimit, type ShareOptions } from "./share.js";
import { type ResourceSnapshot, type Why, whyOf } from "./state.js";
import { type AcquireRequest, type Gate, NONE, type Waiter } from "./tickets.js";
import { readUsage } from "../outcome.js";
import { OutgoingRequest, signalOf } from "../response.js";
import type { FetchInit, FetchInput, FetchResponse } from "../platform.js";

/**
 * Decides when each call to a rate-limited service may start, and adapts its limits to how calls end.
 *
 * Register the model or service first. Then {@link run} or {@link fetch} each call, or {@link acquire} a
 * permit around it. Calls of one tenant start in the order in which they were requested. The limit of
 * concurrent calls follows what the provider accepts.
 *
 * ```ts
 * import { RequestGate } from "tidegate";
 *
 * const gate = new RequestGate();
 * gate.register("provider/model", { maxParallel: 16 });
 * const answer = await gate.run("provider/model", async (call) => {
 *   // Make the call, and pass `call.signal` to it.
 *   return `aborted: ${call.signal.aborted}`;
 * });
 * console.log(answer); // aborted: false
 * ```
 */
export class RequestGate {
  #gate: Gate | undefined;
  readonly #tickets = currentModule();
  readonly #acquireQueue = new AcquireQueue(this.#tickets, () => this.#core());
  readonly #registry = new ResourceRegistry(this.#tickets, (ticket, notes) => {
    // A call can outlive its gate.
    this.#gate?.rateLimitFeedback(ticket, notes);
    this.#tickets.changed();
  }, (resource, idleMs) => {
    this.#listeners.emitOwn("body_left_unread", resource.name, { idleMs });
  });
  /** The number of each tenant that has a group of its own, by name. The core bounds how many there are. */
  readonly #tenants = new Map<string, number>();
  #isShut = false;
  /** Whether all keys are paused, those that are registered later included. */
  #arePaused = false;
  #isEnding = false;
  readonly #listeners = new Listeners();
  #stopWatching: (() => void) | undefined;

  /**
   * Creates a gate without resources.
   *
   * @throws TypeError for an unknown setting or one of another type, RangeError for a setting out of range
   */
  constructor(options: Readonly<GateOptions> = {}) {
    this.#gate = new this.#tickets.module.RequestGate(options);
  }

  /**
   * Registers a provider's model, or changes its limits. A changed limit starts afresh.
   *
   * ```ts
   * import { RequestGate } from "tidegate";
   *
   * const gate = new RequestGate({ cooldownMs: 1_000 });
   * gate.register("provider/writer", { maxParallel: 32 });
   * gate.register(
   *   { provider: "provider", model: "writer", domain: "embedding" },
   *   { maxParallel: 32, budgets: [{ dimension: "total_tokens", limit: 90_000 }] },
   * );
   * ```
   *
   * @returns the resource, which is the fastest form of a key
   * @throws TypeError for a malformed key, an unknown setting or one of another type, RangeError for a setting
   * out of range; the registration is unchanged then
   */
  register(key: Key, limits: Readonly<Limits>): Resource {
    const gate = this.#live();
    const full = readKey(key);
    const { provider, model, domain } = full;
    try {
      const isNew = !this.#registry.hasModel(full);
      const resource = this.#registry.add(full, gate.register(provider, model, domain, limits));
      if (isNew && this.#arePaused) gate.setPaused(resource.number, true);
      return resource;
    } finally {
      this.#tickets.changed();
    }
  }

  /**
   * Sets the weight of a tenant: its share of contended capacity relative to other tenants. Other tenants
   * have a weight of 1.
   *
   * ```ts
   * import { RequestGate } from "tidegate";
   *
   * const gate = new RequestGate();
   * gate.register("provider/model", { maxParallel: 8 });
   * gate.tenant("people", 4);
   * gate.tenant("batch", 1);
   * using permit = await gate.acquire("provider/model", { tenant: "people" });
   * permit.finish("success");
   * ```
   *
   * @param weight 2^-20 to 2^20
   * @throws RangeError for a weight out of range
   */
  tenant(name: string, weight: number): void {
    this.#tenants.set(name, this.#live().group(text("the name of a tenant", name), anyNumber("weight", weight)));
  }

  /**
   * Resolves with a permit as soon as a call may start, in the order of requests.
   *
   * ```ts
   * import { RequestGate } from "tidegate";
   *
   * const gate = new RequestGate();
   * gate.register("provider/model", { maxParallel: 2 });
   * const permit = await gate.acquire("provider/model", { timeoutMs: 5_000, signal: AbortSignal.timeout(60_000) });
   * try {
   *   // ... make the call ...
   *   permit.finish("success");
   * } finally {
   *   // Has no effect on a finished permit.
   *   permit.finish("unexpected");
   * }
   * ```
   *
   * @throws DeniedError (as a rejection) when `timeoutMs` has passed, after `shutdown()`, if the gate is
   * freed while the call waits, and for an unregistered key; FreedError after `free()`; the reason of
   * `signal` once it is aborted; TypeError and RangeError for unknown or invalid options
   */
  acquire(key: Key, options: AcquireOptions = NO_OPTIONS): Promise<Permit> {
    return new Promise((resolve, reject) => {
      const resource = this.#registry.find(key);
      const request = this.#requestOf(options, ACQUIRE_NAMES);
      this.#acquire(new Acquiring(resource, request, options.signal, resolve, reject));
    });
  }

  /**
   * Returns a permit if a call may start now, or undefined. Never overtakes a waiting call. {@link why}
   * returns the reason for a denial.
   *
   * @throws DeniedError after `shutdown()`, and for an unregistered key; FreedError after `free()`
   */
  tryAcquire(key: Key, options: Pick<AcquireOptions, "tenant" | "estimate"> = NO_OPTIONS): Permit | undefined {
    const gate = this.#live();
    const resource = this.#registry.find(key);
    if (options !== NO_OPTIONS) onlyKnown("a call", options, TRY_NAMES);
    const { estimate, tenant } = options;
    const [input, output] = estimate === undefined ? NOTHING : readUsage("estimate", estimate);
    const group = tenant === undefined ? -1 : this.#groupOf(tenant);
    const ticket = gate.tryAcquire(resource.number, group, input, output);
    this.#tickets.changed();
    if (ticket !== NONE) return new Permit(resource, ticket);
    const denial = this.#tickets.latestDenial(resource);
    if (denial.reason === "shutdown") throw denial;
    return undefined;
  }

  /**
   * Runs `fn` as soon as a call may start, and reports to the gate how it ended.
   *
   * `fn` receives the call, which has a signal. The promise settles as `fn` does, and the slot is released in
   * either case. A returned fetch `Response` is classified by its status, Retry-After and `x-ratelimit-*`,
   * and an error response also by its body. {@link Classify} describes how a thrown error is classified.
   *
   * ```ts
   * import { RequestGate, readHead } from "tidegate";
   *
   * class ApiError extends Error {
   *   constructor(readonly status: number, readonly headers: Headers) {
   *     super(`HTTP ${status}`);
   *   }
   * }
   *
   * const gate = new RequestGate();
   * gate.register("provider/model", { maxParallel: 4 });
   * const answer = await gate.run("provider/model", async () => "an answer", {
   *   callTimeoutMs: 30_000,
   *   classify: (result) =>
   *     "error" in result && result.error instanceof ApiError ? readHead(result.error) : undefined,
   * });
   * console.log(answer); // an answer
   * ```
   *
   * @throws (as rejections) what `fn` throws, and before `fn` is called what {@link acquire} rejects with
   */
  run<T>(key: Key, fn: (call: Call) => T | PromiseLike<T>, options: RunOptions<T> = NO_OPTIONS): Promise<T> {
    return new Promise((resolve, reject) => {
      const resource = this.#registry.find(key);
      const request = this.#requestOf(options, RUN_NAMES);
      const { [taskBinding]: binding, retries }: BoundOptions & RunOptions<T> = options;
      const retryState = retryStateOf(resource, retries, binding?.ended);
      if (retryState === undefined) this.#acquire(new Running(resource, request, fn, options, resolve, reject));
      else resolve(runUntilFinal(resource, request, fn, options, retryState, this.#ask));
    });
  }

  readonly #ask = (call: Waiter, isAfterOutage: boolean): void => {
    if (isAfterOutage) this.#acquireAgain(call, true);
    else this.#acquire(call);
  };

  readonly #acquireAgain = (call: Waiter, isAfterOutage: boolean): void => {
    try {
      this.#acquireQueue.acquire(call, isAfterOutage);
    } catch (error) {
      call.rejected(error);
    }
  };

  /**
   * Returns a function that runs other functions as {@link run} does and passes the remaining arguments to
   * them, like the one that `pLimit(n)` returns.
   *
   * ```ts
   * import { RequestGate } from "tidegate";
   *
   * const gate = new RequestGate();
   * gate.register("api", { maxParallel: 4 });
   * const limit = gate.limit("api", { retries: 3 });
   * const squares = await Promise.all([1, 2, 3].map((n) => limit(async (of) => of * of, n)));
   * console.log(squares.join()); // 1,4,9
   * ```
   *
   * @throws DeniedError for an unregistered key, TypeError for an unknown option
   */
  limit(key: Key, options: LimitOptions = NO_OPTIONS): LimitFunction {
    const resource = this.#registry.find(key);
    onlyKnown("a limit", options, LIMIT_NAMES);
    return (fn, ...args) => this.run(resource, () => fn(...args), options);
  }

  /**
   * Stops granting calls: of a key with all domains of its model, or of all keys, also those that are
   * registered later. Calls wait, and their timeouts continue to run. Calls in flight are not affected.
   *
   * ```ts
   * import { RequestGate } from "tidegate";
   *
   * const gate = new RequestGate();
   * gate.register("api", { maxParallel: 4 });
   * gate.pause();
   * const answer = gate.run("api", () => "an answer");
   * console.log(gate.size(), gate.why("api")?.text); // 1 api: it is paused
   * gate.resume();
   * console.log(await answer); // an answer
   * ```
   *
   * @throws DeniedError for an unregistered key
   */
  pause(key?: Key): void {
    this.#setPaused(key, true);
  }

  /** Grants calls again, of a key or of all keys, also those that are registered later. Has no effect unless {@link pause} was called. */
  resume(key?: Key): void {
    this.#setPaused(key, false);
  }

  #setPaused(key: Key | undefined, isPaused: boolean): void {
    const gate = this.#live();
    if (key === undefined) this.#arePaused = isPaused;
    for (const { number } of key === undefined ? this.#registry.all() : [this.#registry.find(key)]) gate.setPaused(number, isPaused);
    this.#tickets.changed();
  }

  /**
   * Sets how many calls of a key's model may be in flight at once, over all domains. Unlike {@link register},
   * it keeps what the limit has learned.
   *
   * @throws RangeError unless the value is a whole number from 1 up, DeniedError for an unregistered key
   */
  setMaxParallel(key: Key, maxParallel: number): void {
    const gate = this.#live();
    const { provider, model } = this.#registry.find(key);
    const most = whole("maxParallel", maxParallel);
    if (most === 0) throw new RangeError("maxParallel is 0; expected at least 1; use `pause` to stop all calls");
    gate.setMaxParallel(provider, model, most);
    this.#tickets.changed();
  }

  /** Returns how many calls wait, of a key or of all keys: for a permit, or for their next retry. */
  size(key?: Key): number {
    const gate = this.#live();
    const resource = key === undefined ? undefined : this.#registry.find(key);
    const waiters = this.#sum(resource, ({ number }) => gate.waiters(number));
    return waiters + this.#registry.pauses.count(resource);
  }

  /** Returns how many calls are in flight, of a key or of all keys. */
  pending(key?: Key): number {
    const gate = this.#live();
    return this.#sum(key === undefined ? undefined : this.#registry.find(key), ({ number }) => gate.inFlight(number));
  }

  #sum(resource: Resource | undefined, of: (resource: Resource) => number): number {
    let sum = 0;
    for (const each of resource === undefined ? this.#registry.all() : [resource]) sum += of(each);
    return sum;
  }

  /**
   * Resolves once no call of a key, or of all keys, waits or is in flight. Resolves at once if that holds
   * already.
   *
   * ```ts
   * import { RequestGate } from "tidegate";
   *
   * const gate = new RequestGate();
   * gate.register("api", { maxParallel: 4 });
   * let made = 0;
   * for (let n = 0; n < 100; n += 1) void gate.run("api", () => (made += 1));
   * await gate.onIdle();
   * console.log(made); // 100
   * ```
   *
   * @throws FreedError (as a rejection) if the gate is freed
   */
  onIdle(key?: Key): Promise<void> {
    return new Promise((resolve, reject) => {
      const isIdle = (): boolean => this.size(key) === 0 && this.pending(key) === 0;
      if (isIdle()) return resolve();
      const unwatch = this.#tickets.watch(() => {
        try {
          if (!isIdle()) return;
          unwatch();
          resolve();
        } catch (error) {
          unwatch();
          reject(error);
        }
      });
    });
  }

  /**
   * Rejects every waiting call of a key, or of all keys, with a `DeniedError` of reason `cancelled`. Calls in
   * flight continue, and the gate stays open. Pipeline tasks whose calls are rejected are left for a later
   * run.
   *
   * @returns how many calls were rejected
   */
  clear(key?: Key): number {
    this.#live();
    const resource = key === undefined ? undefined : this.#registry.find(key);
    const count = this.#registry.pauses.deny("cancelled", resource);
    const isMeant = (each: Resource): boolean => (resource === undefined ? each.registry === this.#registry : each === resource);
    return count + this.#tickets.clear(isMeant, ({ name }) => new DeniedError(name, "cancelled"));
  }

  /**
   * Fetches under a permit. The permit is held until the body of the response has arrived, is cancelled or
   * fails. A 4xx response releases it once the start of its body was read, which may state that the account
   * is out of quota. Such a response is returned like any other.
   *
   * Responses may be read in any order, or not at all. Up to 256 KiB of each body are read ahead. A longer
   * body that is not read releases its slot after {@link FetchOptions.bodyIdleMs}.
   *
   * ```ts
   * import { RequestGate } from "tidegate";
   *
   * const gate = new RequestGate();
   * gate.register("provider/model", { maxParallel: 4 });
   * const answer = await gate.fetch("provider/model", "data:application/json,{}");
   * console.log(await answer.json()); // {}
   * ```
   *
   * The body is not a byte stream: it has no reader of mode `byob`.
   *
   * @param init as for `fetch`; its signal also removes a waiting call from the queue
   * @throws what `fetch` throws, and what {@link acquire} rejects with (as rejections)
   */
  async fetch(
    key: Key,
    input: FetchInput,
    init: FetchInit = {},
    options: FetchOptions = NO_OPTIONS,
  ): Promise<FetchResponse> {
    const resource = this.#registry.find(key);
    if (options !== NO_OPTIONS) onlyKnown("a call", options, FETCH_NAMES);
    const signal = signalOf(input, init);
    const how: FetchOptions & { readonly signal?: AbortSignal } = signal ? { ...options, signal } : options;
    const { [taskBinding]: binding }: BoundOptions = options;
    const request = this.#requestOf(how, HELD_NAMES);
    return fetchUnder(resource, request, new OutgoingRequest(input, init), how, binding, this.#ask);
  }

  /**
   * Returns why the next call of a key cannot start now, or undefined if it can. Changes nothing.
   *
   * ```ts
   * import { RequestGate } from "tidegate";
   *
   * const gate = new RequestGate();
   * gate.register("provider/model", { maxParallel: 1 });
   * console.log(gate.why("provider/model")); // undefined
   * using permit = await gate.acquire("provider/model");
   * console.log(gate.why("provider/model")?.text); // provider/model: the limit of 1 concurrent call is reached
   * permit.finish("success");
   * ```
   *
   * @throws DeniedError for an unregistered key
   */
  why(key: Key): Why | undefined {
    const gate = this.#live();
    return whyOf(gate, this.#registry.find(key), this.#isShut);
  }

  /**
   * Shares the limit of a key with other processes from now on, over a Redis or Valkey server. Together, all processes
   * that share it under one name have no more calls in flight than one process would, and a 429 to one of them slows
   * all down. Register the key with the same limits in all of them.
   *
   * Calls that start while this is under way are not limited by a share. After it, none starts before the first share
   * arrives, which takes about 0.2 seconds, or up to two seconds if another process has just stopped.
   *
   * ```ts
   * import { createClient } from "redis";
   * import { RequestGate } from "tidegate";
   *
   * const redis = await createClient({ url: process.env.REDIS_URL ?? "redis://127.0.0.1:6379" })
   *   .on("error", (error) => console.error(error.message))
   *   .connect();
   * const gate = new RequestGate();
   * gate.register("acme/writer", { maxParallel: 64 });
   * const shared = await gate.share("acme/writer", { redis, name: "docs-gate" });
   * console.log(await gate.run("acme/writer", () => "an answer")); // an answer
   * await shared.leave();
   * await redis.close();
   * ```
   *
   * @throws (as rejections) ShareError if the server cannot be used, or the limit is shared already; DeniedError for
   * an unregistered key; TypeError and RangeError for unknown or invalid options
   */
  async share(key: Key, options: Readonly<ShareOptions>): Promise<SharedLimit> {
    this.#live();
    const resource = this.#registry.find(key);
    return shareLimit(resource, options, () => this.#live(), (waiter) => this.#acquireAgain(waiter, false));
  }

  /**
   * Returns the state of a resource now. Changes nothing.
   *
   * @throws DeniedError for an unregistered key
   */
  snapshot(key: Key): ResourceSnapshot {
    const gate = this.#live();
    const resource = this.#registry.find(key);
    const snapshot = gate.snapshot(resource.number);
    if (snapshot === undefined) throw new DeniedError(resource.name, "unregistered");
    return snapshot;
  }

  /** Returns all resources, in order of registration. */
  resources(): Resource[] {
    this.#live();
    return this.#registry.all();
  }

  /**
   * Calls `listener` with each later event, in a microtask of its own. Only kinds with a listener are
   * recorded. The first error that a listener throws is logged on the console; it affects neither the gate
   * nor other listeners. A listener may call the gate.
   *
   * ```ts
   * import { RequestGate } from "tidegate";
   *
   * const gate = new RequestGate();
   * gate.register("provider/model", { maxParallel: 4 });
   * const unsubscribe = gate.subscribe(
   *   (event) => {
   *     if (event.kind === "limit_decreased") console.log(`${event.key}: ${event.from} -> ${event.to}`);
   *   },
   *   { kinds: ["limit_decreased", "limit_increased"] },
   * );
   * unsubscribe();
   * ```
   *
   * @returns a function that ends the subscription
   * @throws TypeError for an unknown kind
   */
  subscribe<Kind extends GateEventKind = GateEventKind>(
    listener: (event: Extract<GateEvent, { readonly kind: Kind }>) => void,
    options: SubscribeOptions & { readonly kinds?: readonly Kind[] | undefined } = {},
  ): () => void {
    this.#live();
    const bits = bitsOf(options.kinds ?? GATE_EVENT_KINDS);
    // The listener receives events of these kinds only.
    const remove = this.#listeners.add(listener as (event: GateEvent) => void, bits);
    this.#listen();
    return () => {
      remove();
      this.#listen();
    };
  }

  /**
   * Rejects all waiting and all later calls with a `DeniedError` of reason `shutdown`. Permits in use stay
   * valid. Limits that are {@link share | shared} are left without waiting for it.
   */
  shutdown(): void {
    this.#isShut = true;
    this.#registry.pauses.deny("shutdown");
    if (this.#live().shutdown() > 0) this.#tickets.deliver();
    for (const { shared } of this.#registry.all()) shared?.beginToLeave();
    this.#tickets.changed();
  }

  /**
   * Shuts the gate down and releases its memory. Permits in use stay valid. Any other method throws a
   * `FreedError` from now on. A second call has no effect. The garbage collector frees a gate that is no
   * longer referenced.
   */
  free(): void {
    if (this.#gate === undefined || this.#isEnding) return;
    // A listener may call this method again while the last events are delivered.
    this.#isEnding = true;
    this.shutdown();
    this.#emitPending();
    this.#listeners.clear();
    this.#listen();
    this.#gate.free();
    this.#gate = undefined;
  }

  /** @internal */
  [inspect](): string {
    return this.#gate === undefined ? "RequestGate (freed)" : `RequestGate for ${this.resources().join(", ") || "nothing yet"}`;
  }

  /** The same as {@link free}. */
  [dispose](): void {
    this.free();
  }

  /** @internal The core's gate, for pipelines that call through it. */
  get core(): Gate {
    return this.#live();
  }

  /** @internal The number of a key. */
  numberOf(key: Key): number {
    return this.#registry.find(key).number;
  }

  /** Returns the core's gate for a command. Calls requested before the command reach the core before it. */
  #live(): Gate {
    this.#acquireQueue.flush();
    return this.#core();
  }

  #core(): Gate {
    if (this.#gate === undefined) throw new FreedError("gate");
    return this.#gate;
  }

  /**
   * Requests a permit in the order of calls. A request of a pipeline task is made at once, because it uses
   * the task's yield token.
   */
  #acquire(waiter: Waiter): void {
    if (waiter.request.passYieldToken === undefined) return this.#acquireQueue.enqueue(waiter);
    this.#acquireQueue.flush();
    this.#acquireQueue.acquire(waiter, false);
  }

  /** Reads the options of a call. Throws for invalid options and for an aborted signal. */
  #requestOf(options: BoundOptions, names: readonly string[]): AcquireRequest {
    this.#core();
    if (options === NO_OPTIONS) return PLAIN;
    onlyKnown("a call", options, names);
    const { signal, timeoutMs, estimate, tenant } = options;
    if (signal !== undefined && signal !== null && isAborted(signal)) throw signal.reason;
    const [input, output] = estimate === undefined ? NOTHING : readUsage("estimate", estimate);
    return {
      group: tenant === undefined ? -1 : this.#groupOf(tenant),
      timeoutMs: timeoutMs === undefined ? NaN : spanMs("timeoutMs", timeoutMs),
      input,
      output,
      passYieldToken: options[taskBinding]?.passYieldToken,
    };
  }

  #groupOf(tenant: string): number {
    return this.#tenants.get(tenant) ?? this.#registerTenant(tenant);
  }

  #registerTenant(tenant: string): number {
    const group = this.#core().groupOfTenant(text("the name of a tenant", tenant));
    if (group < 0) return ~group;
    this.#tenants.set(tenant, group);
    return group;
  }

  #listen(): void {
    const { bits } = this.#listeners;
    if (bits !== 0) this.#stopWatching ??= this.#tickets.watch(() => this.#emitPending());
    else this.#stopWatching = void this.#stopWatching?.();
    this.#gate?.listen(bits);
  }

  #emitPending(): void {
    for (let numbers = this.#gate?.nextEvent(); numbers !== undefined; numbers = this.#gate?.nextEvent()) {
      const event = readEvent(numbers, this.#registry);
      if (event !== undefined) this.#listeners.emit(event);
    }
  }
}

const NOTHING = [0, 0] as const;
/** The request of a call without options. */
const PLAIN: AcquireRequest = { group: -1, timeoutMs: NaN, input: 0, output: 0, passYieldToken: undefined };

/** Returns whether a signal is aborted. Throws for a value that is not a signal. */
function isAborted(signal: AbortSignal): boolean {
  const { aborted, addEventListener, removeEventListener } = signal;
  if (typeof aborted === "boolean" && typeof addEventListener === "function" && typeof removeEventListener === "function") {
    return aborted;
  }
  throw new TypeError(`signal must be an AbortSignal, not ${shown(signal)}`);
}
