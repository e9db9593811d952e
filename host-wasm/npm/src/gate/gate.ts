/// <reference lib="esnext.disposable" preserve="true" />
/** Request admission for real calls. */

import { currentModule } from "../core.js";
import { DeniedError, FreedError, anyNumber, onlyKnown, shown, spanMs, text, whole } from "../errors.js";
import { bitsOf, GATE_EVENT_KINDS, type GateEvent, type GateEventKind, Listeners, readEvent } from "../events.js";
import { AcquireQueue, type Gate } from "./acquire_queue.js";
import type { Call } from "./call.js";
import { fetchUnder } from "./fetching.js";
import { ResourceRegistry, inspect, type Key, readKey, type Resource } from "./keys.js";
import { ADAPTIVE_NAMES, type AdaptiveSettings, LimitNumbers, type Limits } from "./limits.js";
import {
  ACQUIRE_NAMES,
  type AcquireOptions,
  FETCH_NAMES,
  type FetchOptions,
  type GateOptions,
  HELD_NAMES,
  type LimitFunction,
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
import { Running } from "./running.js";
import { readSnapshot, readWhy, withUnread, type ResourceSnapshot, type Why } from "./state.js";
import { type AcquireRequest, NONE, type Tickets, type Waiter } from "./tickets.js";
import { readUsage } from "../outcome.js";
import { OutgoingRequest, signalOf } from "../response.js";
import type { FetchInit, FetchInput, FetchResponse } from "../platform.js";

/**
 * Decides when a call may go out, and learns from what became of it.
 *
 * Register what is called, then {@link run} or {@link fetch} each call, or {@link acquire} a permit around
 * it. Calls go out in the order of asking, within their tenant; the limit of calls in flight follows what the
 * provider accepts.
 *
 * ```ts
 * import { RequestGate } from "tidegate";
 *
 * const gate = new RequestGate();
 * gate.register("provider/model", { maxParallel: 16 });
 * const answer = await gate.run("provider/model", async (call) => {
 *   // Make the call, and hand `call.signal` on to it.
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
    // A call may outlive its gate.
    this.#gate?.rateLimitFeedback(ticket, notes);
    this.#tickets.changed();
  }, (resource, idleMs) => {
    this.#listeners.emitOwn("body_left_unread", resource.name, { idleMs });
  });
  readonly #defaults: AdaptiveSettings;
  /** Groups of tenants that have one to themselves, by name: the core bounds these too. */
  readonly #tenants = new Map<string, number>();
  #isShut = false;
  #isEnding = false;
  readonly #listeners = new Listeners();
  #stopWatching: (() => void) | undefined;

  /**
   * A gate with no resources yet.
   *
   * @throws TypeError for a setting that does not exist, RangeError for one out of its range
   */
  constructor(options: GateOptions = {}) {
    onlyKnown("a gate", options, [...ADAPTIVE_NAMES, "defaultTimeoutMs", "health", "rateLimitHeaders"]);
    const { defaultTimeoutMs, health = true, rateLimitHeaders = true, ...defaults } = options;
    if (typeof health !== "boolean") throw new TypeError(`health is ${shown(health)}; expected true or false`);
    if (typeof rateLimitHeaders !== "boolean") {
      throw new TypeError(`rateLimitHeaders is ${shown(rateLimitHeaders)}; expected true or false`);
    }
    this.#defaults = defaults;
    // What is wrong is told now, and not by the first registration.
    this.#gate = checked(this.#tickets, new LimitNumbers({ maxParallel: 1 }, defaults), defaultTimeoutMs, health, rateLimitHeaders);
  }

  /**
   * Makes a provider's model known, or changes its limits: the limit then starts afresh.
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
   * @returns the resource; given as a key, it is found fastest
   * @throws TypeError for a key or a setting that does not exist, RangeError for a setting out of its range; nothing has changed
   * then
   */
  register(key: Key, limits: Limits): Resource {
    const gate = this.#live();
    const full = readKey(key);
    const numbers = new LimitNumbers(limits, this.#defaults);
    const { maxParallel, weight, adaptive, algorithm, budgets } = numbers;
    try {
      const { provider, model, domain } = full;
      const number = gate.register(provider, model, domain, maxParallel, weight, adaptive, algorithm, budgets);
      return this.#registry.add(full, number);
    } catch (refusal) {
      throw numbers.errorOf(refusal);
    } finally {
      this.#tickets.changed();
    }
  }

  /**
   * Gives a tenant this share of whatever is contended, beside the others. Tenants that are not named here
   * share alike: weight 1.
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
    this.#tenants.set(name, this.#group(text("the name of a tenant", name), anyNumber("weight", weight)));
  }

  /**
   * Resolves with a permit as soon as a call may go out, in the order of asking.
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
   *   // Does nothing if it is finished.
   *   permit.finish("unexpected");
   * }
   * ```
   *
   * @throws DeniedError (as a rejection) when `timeoutMs` is over, after `shutdown()`, if the gate is freed while the call waits,
   * and for a key that was never registered; FreedError after `free()`; the reason of `signal` once that is
   * aborted; TypeError and RangeError for options that do not exist or make no sense
   */
  acquire(key: Key, options: AcquireOptions = NO_OPTIONS): Promise<Permit> {
    return new Promise((resolve, reject) => {
      const resource = this.#registry.find(key);
      const request = this.#requestOf(options, ACQUIRE_NAMES);
      this.#acquire(new Acquiring(resource, request, options.signal, resolve, reject));
    });
  }

  /**
   * A permit at once, or undefined. Never overtakes a call that waits. {@link why} tells what there is to
   * wait for.
   *
   * @throws DeniedError after `shutdown()`, and for a key that was never registered; FreedError after `free()`
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
   * Makes a call as soon as it may go out, and tells the gate how it ended.
   *
   * `fn` is given the call with a signal. What it returns is returned; what it throws is thrown, and either
   * way the slot is given back. A returned fetch `Response` is read by its status, Retry-After and
   * `x-ratelimit-*`, and by its body if it is a refusal; what a thrown error means says {@link Classify}.
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
   * @throws whatever `fn` throws, and what {@link acquire} rejects with before `fn` is called (as rejections)
   */
  run<T>(key: Key, fn: (call: Call) => T | PromiseLike<T>, options: RunOptions<T> = NO_OPTIONS): Promise<T> {
    return new Promise((resolve, reject) => {
      const resource = this.#registry.find(key);
      const request = this.#requestOf(options, RUN_NAMES);
      const { [taskBinding]: binding, retries }: BoundOptions & RunOptions<T> = options;
      const retryState = retryStateOf(resource, retries, binding?.ended);
      const rerun = retryState && { retryState, ask: this.#acquireAgain, kept: undefined };
      this.#acquire(new Running(resource, request, fn, options, resolve, reject, rerun));
    });
  }

  readonly #acquireAgain = (call: Waiter, isAfterOutage: boolean): void => {
    try {
      this.#acquireQueue.acquire(call, isAfterOutage);
    } catch (error) {
      call.rejected(error);
    }
  };

  /**
   * A function that runs others as {@link run} does, each with the arguments behind it: what `pLimit(n)`
   * returns.
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
   * @throws DeniedError for a key that was never registered
   */
  limit(key: Key, options: Omit<RunOptions, "classify"> = NO_OPTIONS): LimitFunction {
    const resource = this.#registry.find(key);
    return (fn, ...args) => this.run(resource, () => fn(...args), options);
  }

  /**
   * Holds calls back from now on: those of a key, with all domains of its model, or all. They wait, and their
   * timeouts run on. Calls that are out go on.
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
   * @throws DeniedError for a key that was never registered
   */
  pause(key?: Key): void {
    this.#setPaused(key, true);
  }

  /** Lets calls go out again, of a key or all. Without a {@link pause} it does nothing. */
  resume(key?: Key): void {
    this.#setPaused(key, false);
  }

  #setPaused(key: Key | undefined, isPaused: boolean): void {
    const gate = this.#live();
    for (const { number } of key === undefined ? this.#registry.all() : [this.#registry.find(key)]) gate.setPaused(number, isPaused);
    this.#tickets.changed();
  }

  /**
   * Changes how many calls of a key's model may be out at once, all domains together, and keeps what was
   * learned about it: {@link register} would start afresh.
   *
   * @throws RangeError for what is no whole number from 1 up, DeniedError for a key that was never registered
   */
  setMaxParallel(key: Key, maxParallel: number): void {
    const gate = this.#live();
    const { provider, model } = this.#registry.find(key);
    const most = whole("maxParallel", maxParallel);
    if (most === 0) throw new RangeError("maxParallel is 0; expected at least 1: `pause` lets nothing out");
    gate.setMaxParallel(provider, model, most);
    this.#tickets.changed();
  }

  /** How many calls wait, of a key or of all: for their turn, or to be made again. */
  size(key?: Key): number {
    this.#live();
    const resource = key === undefined ? undefined : this.#registry.find(key);
    const waiters = this.#sum(resource, ({ waiters }) => waiters);
    return waiters + this.#registry.pauses.count(resource);
  }

  /** How many calls are out, of a key or of all. */
  pending(key?: Key): number {
    this.#live();
    return this.#sum(key === undefined ? undefined : this.#registry.find(key), ({ inFlight }) => inFlight);
  }

  #sum(resource: Resource | undefined, of: (state: ResourceSnapshot) => number): number {
    let sum = 0;
    for (const each of resource === undefined ? this.#registry.all() : [resource]) sum += of(this.snapshot(each));
    return sum;
  }

  /**
   * Resolves once no call waits and none is out, of a key or of all; at once, if it is so already.
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
   * Turns away every call that waits, of a key or all, with a `DeniedError` of reason `cancelled`. Calls that
   * are out go on, and the gate stays open. Tasks of a pipeline whose calls are turned away are left to a
   * later run.
   *
   * @returns how many calls were turned away
   */
  clear(key?: Key): number {
    this.#live();
    const resource = key === undefined ? undefined : this.#registry.find(key);
    const count = this.#registry.pauses.deny("cancelled", resource);
    const isMeant = (each: Resource): boolean => (resource === undefined ? each.registry === this.#registry : each === resource);
    return count + this.#tickets.clear(isMeant, ({ name }) => new DeniedError(name, "cancelled"));
  }

  /**
   * Fetches under a permit, which is held until the body of the answer has come, was cancelled or broke. A
   * refusal, a 4xx, gives it back as soon as the beginning of its body was read, which may say that the
   * account is empty; it is returned like any other answer.
   *
   * Answers may be read in any order, or not at all: up to 256 KiB of each are read ahead, and a longer body
   * that nobody reads gives its slot back after {@link FetchOptions.bodyIdleMs}.
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
   * The body is no byte stream: it has no reader in mode `byob`.
   *
   * @param init as for `fetch`; its signal takes the call out of the queue too
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
    return fetchUnder(resource, request, new OutgoingRequest(input, init), how, binding, (call, isAgain) => {
      if (isAgain) this.#acquireQueue.acquire(call, true);
      else this.#acquire(call);
    });
  }

  /**
   * What keeps the next call of a key from going out, as an object and in words; undefined if it could go out
   * at once. Changes nothing.
   *
   * ```ts
   * import { RequestGate } from "tidegate";
   *
   * const gate = new RequestGate();
   * gate.register("provider/model", { maxParallel: 1 });
   * console.log(gate.why("provider/model")); // undefined
   * using permit = await gate.acquire("provider/model");
   * console.log(gate.why("provider/model")?.text); // provider/model: all 1 calls that it may have out are out
   * permit.finish("success");
   * ```
   *
   * @throws DeniedError for a key that was never registered
   */
  why(key: Key): Why | undefined {
    const gate = this.#live();
    const resource = this.#registry.find(key);
    if (this.#isShut) return { kind: "shutdown", text: `${resource.name}: the gate is shut` };
    const numbers = gate.why(resource.number);
    return numbers && withUnread(readWhy(resource, numbers), resource.unread);
  }

  /**
   * The state of a resource at this instant. Reading it changes nothing.
   *
   * @throws DeniedError for a key that was never registered
   */
  snapshot(key: Key): ResourceSnapshot {
    const gate = this.#live();
    const resource = this.#registry.find(key);
    const numbers = gate.snapshot(resource.number);
    if (numbers === undefined) throw new DeniedError(resource.name, "unregistered");
    return readSnapshot(resource, numbers);
  }

  /** Everything that was registered, in order of registration. */
  resources(): Resource[] {
    this.#live();
    return this.#registry.all();
  }

  /**
   * Tells `listener` of what happens from now on, in turns of its own. Events are made only if somebody wants
   * their kind. A listener that throws is reported once on the console, and disturbs nothing; it may call the
   * gate.
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
   * @throws TypeError for a kind that does not exist
   */
  subscribe<Kind extends GateEventKind = GateEventKind>(
    listener: (event: Extract<GateEvent, { readonly kind: Kind }>) => void,
    options: SubscribeOptions & { readonly kinds?: readonly Kind[] | undefined } = {},
  ): () => void {
    this.#live();
    const bits = bitsOf(options.kinds ?? GATE_EVENT_KINDS);
    // It is told of those kinds only.
    const remove = this.#listeners.add(listener as (event: GateEvent) => void, bits);
    this.#listen();
    return () => {
      remove();
      this.#listen();
    };
  }

  /**
   * Turns away everyone who waits, and everyone who asks from now on, with a `DeniedError` of reason
   * `shutdown`. Permits that are out stay valid.
   */
  shutdown(): void {
    this.#isShut = true;
    this.#registry.pauses.deny("shutdown");
    if (this.#live().shutdown() > 0) this.#tickets.deliver();
    this.#tickets.changed();
  }

  /**
   * Shuts the gate down and gives back its memory. Permits that are out stay valid; anything else throws a
   * `FreedError` from now on. A second call does nothing. A gate that is forgotten is freed by the garbage
   * collector.
   */
  free(): void {
    if (this.#gate === undefined || this.#isEnding) return;
    // A listener that is told of the end may call this again.
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

  /** @internal What a pipeline that calls through the gate has to know. */
  get core(): Gate {
    return this.#live();
  }

  /** @internal The number of a key. */
  numberOf(key: Key): number {
    return this.#registry.find(key).number;
  }

  /** The wasm module's gate, for a command. Calls that came before it have asked. */
  #live(): Gate {
    this.#acquireQueue.flush();
    return this.#core();
  }

  #core(): Gate {
    if (this.#gate === undefined) throw new FreedError("gate");
    return this.#gate;
  }

  /** Asks for a permit, in its turn. A task's tie is lent at once. */
  #acquire(waiter: Waiter): void {
    if (waiter.request.lendYieldToken === undefined) return this.#acquireQueue.enqueue(waiter);
    this.#acquireQueue.flush();
    this.#acquireQueue.acquire(waiter, false);
  }

  /** Reads what a call asks for. Throws for options that make no sense, and for a signal that is aborted. */
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
      lendYieldToken: options[taskBinding]?.lendYieldToken,
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

  #group(name: string, weight: number): number {
    try {
      return this.#live().group(name, weight);
    } catch (refusal) {
      throw typeof refusal === "string" ? new RangeError(`weight is ${weight}; expected ${refusal.split("\n")[1]}`) : refusal;
    }
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
/** What a call asks for that has no options. */
const PLAIN: AcquireRequest = { group: -1, timeoutMs: NaN, input: 0, output: 0, lendYieldToken: undefined };

/** Whether a signal is aborted; throws for what is none. */
function isAborted(signal: AbortSignal): boolean {
  const { aborted, addEventListener, removeEventListener } = signal;
  if (typeof aborted === "boolean" && typeof addEventListener === "function" && typeof removeEventListener === "function") {
    return aborted;
  }
  throw new TypeError(`signal must be an AbortSignal, not ${shown(signal)}`);
}

/** A gate of the wasm module, once the defaults of its resources were tried. */
function checked(
  { module }: Tickets,
  defaults: LimitNumbers,
  defaultTimeoutMs: number | undefined,
  health: boolean,
  rateLimitHeaders: boolean,
): Gate {
  const timeoutMs = defaultTimeoutMs === undefined ? NaN : spanMs("defaultTimeoutMs", defaultTimeoutMs);
  const gate = new module.RequestGate(timeoutMs, health, rateLimitHeaders);
  const probe = new module.RequestGate(NaN, false, false);
  try {
    probe.register("p", "m", "chat", 1, 1, defaults.adaptive, defaults.algorithm, defaults.budgets);
    return gate;
  } catch (refusal) {
    gate.free();
    throw defaults.errorOf(refusal);
  } finally {
    probe.free();
  }
}
