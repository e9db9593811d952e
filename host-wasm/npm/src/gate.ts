/// <reference lib="esnext.disposable" preserve="true" />
/** Request admission for real calls. */

import { DeniedError, FreedError, anyNumber, onlyKnown, spanMs, text } from "./errors.js";
import { bitsOf, GATE_EVENT_KINDS, type GateEvent, type GateEventKind, Listeners, readEvent } from "./events.js";
import { type Call, CallUnderWay, type Classify, type Correct } from "./gate-call.js";
import { Book, type Key, readKey, type Resource } from "./gate-keys.js";
import { ADAPTIVE_NAMES, type AdaptiveSettings, LimitNumbers, type Limits } from "./gate-limits.js";
import { dispose, giveUp, Permit } from "./gate-permit.js";
import { readSnapshot, readWhy, type ResourceSnapshot, type Why } from "./gate-state.js";
import { bind, deliver, latestDenial, NONE, soon, wait, watch } from "./gate-tickets.js";
import { PROVIDER_FAILURE, readUsage, UNEXPECTED, type Usage } from "./outcome.js";
import { type BodyEnd, holdBody } from "./response.js";
import { finish, RequestGate as Gate } from "./wasm/tidegate_live.js";

/** Settings of a gate: what its resources have unless they say otherwise, and how long calls may wait. */
export interface GateOptions extends AdaptiveSettings {
  /** The longest wait of a call that names none, in milliseconds from 0 up. Default: no bound. */
  readonly defaultTimeoutMs?: number | undefined;
}

/** How a call asks. */
export interface AcquireOptions {
  /** The longest wait, in milliseconds from 0 up: 0 is "now or not at all". Default: the gate's `defaultTimeoutMs`. */
  readonly timeoutMs?: number | undefined;
  /** Takes the call out of the queue when it is aborted; the promise is then rejected with its reason. */
  readonly signal?: AbortSignal | undefined;
  /** For whom: calls of one tenant share its weight. Default: nobody in particular. */
  readonly tenant?: string | undefined;
  /** What the call is expected to use of the token budgets. Default: nothing. */
  readonly estimate?: Usage | undefined;
}

/** How {@link RequestGate.run} makes a call. */
export interface RunOptions<T = unknown> extends AcquireOptions {
  /**
   * How long the call itself may take, in milliseconds from 0 up; then its signal is aborted with a `TimeoutError`. The slot is
   * held until the function has ended all the same. Default: no bound.
   */
  readonly callTimeoutMs?: number | undefined;
  /** Says how the call ended, where the gate cannot know. */
  readonly classify?: Classify<T> | undefined;
}

/** What {@link RequestGate.subscribe} wants to hear. */
export interface SubscribeOptions {
  /** The kinds of events. Default: all. */
  readonly kinds?: readonly GateEventKind[] | undefined;
}

/** @internal Called right before the wasm module is asked: how a pipeline's task says on whose behalf. */
export const beforeAsking: unique symbol = Symbol("before asking");

/** @internal */
interface Asking extends AcquireOptions {
  readonly [beforeAsking]?: (() => void) | undefined;
}

/** Tenants that nobody registered and that get a group of their own; those beyond share one. */
const MOST_STRANGERS = 4_096;
const OTHERS = "(others)";

/**
 * Decides when a call may go out, and learns from what became of it.
 *
 * Register what is called, then {@link run} or {@link fetch} each call, or {@link acquire} a permit around it. Calls go out in the
 * order of asking, within their tenant; the limit of calls in flight follows what the provider bears.
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
  readonly #book = new Book();
  readonly #defaults: AdaptiveSettings;
  readonly #tenants = new Map<string, number>();
  #strangers = 0;
  #isShut = false;
  readonly #listeners = new Listeners();
  #stopWatching: (() => void) | undefined;

  /**
   * A gate with no resources yet.
   *
   * @throws TypeError for a setting that does not exist, RangeError for one out of its range
   */
  constructor(options: GateOptions = {}) {
    onlyKnown("a gate", options, [...ADAPTIVE_NAMES, "defaultTimeoutMs"]);
    const { defaultTimeoutMs, ...defaults } = options;
    this.#defaults = defaults;
    // What is wrong is told now, and not by the first registration.
    this.#gate = checked(new LimitNumbers({ maxParallel: 1 }, defaults), defaultTimeoutMs);
    bind();
  }

  /**
   * Makes a provider's model known, or changes its limits: the limit then starts afresh.
   *
   * ```ts
   * import { RequestGate } from "tidegate";
   *
   * const gate = new RequestGate({ cooldownMs: 1_000 });
   * gate.register("provider/writer", { maxParallel: 32, algorithm: "tide" });
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
      return this.#book.add(full, number, budgets.length > 0);
    } catch (refusal) {
      throw numbers.refused(refusal);
    } finally {
      this.#changed();
    }
  }

  /**
   * Gives a tenant this share of whatever is contended, beside the others. Tenants that are not named here share alike: weight 1.
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
    this.#tenants.set(text("the name of a tenant", name), this.#group(name, anyNumber("weight", weight)));
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
   * @throws DeniedError (as a rejection) when `timeoutMs` is over, after `shutdown()` and `free()`, and for a key that was never
   * registered; the reason of `signal` once that is aborted; TypeError and RangeError for options that make no sense
   */
  async acquire(key: Key, options: AcquireOptions = {}): Promise<Permit> {
    const resource = this.#book.find(key);
    const ticket = await this.#ask(resource, options);
    return new Permit(resource, ticket);
  }

  /**
   * A permit at once, or undefined. Never overtakes a call that waits. {@link why} tells what there is to wait for.
   *
   * @throws DeniedError after `shutdown()`, and for a key that was never registered
   */
  tryAcquire(key: Key, options: Pick<AcquireOptions, "tenant" | "estimate"> = {}): Permit | undefined {
    const gate = this.#live();
    const resource = this.#book.find(key);
    const [input, output] = options.estimate ? readUsage("estimate", options.estimate) : NOTHING;
    const ticket = gate.tryAcquire(resource.number, this.#groupOf(options.tenant), input, output);
    this.#changed();
    if (ticket !== NONE) return new Permit(resource, ticket);
    const denial = latestDenial(resource);
    if (denial.reason === "shutdown") throw denial;
    return undefined;
  }

  /**
   * Makes a call as soon as it may go out, and tells the gate how it ended.
   *
   * `fn` is given the call with a signal. What it returns is returned; what it throws is thrown, and either way the slot is given
   * back. A returned fetch `Response` is read by its status, Retry-After and `x-ratelimit-*`; an error called `AbortError` counts as
   * `local_cancelled`, a `TimeoutError` as `local_timeout`, any other as `unexpected` or what `classify` says.
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
  async run<T>(key: Key, fn: (call: Call) => T | PromiseLike<T>, options: RunOptions<T> = {}): Promise<T> {
    const resource = this.#book.find(key);
    const { signal, classify, callTimeoutMs } = options;
    const callLimit = callTimeoutMs === undefined ? undefined : spanMs("callTimeoutMs", callTimeoutMs);
    const ticket = await this.#ask(resource, options);
    const call = new CallUnderWay(this.#correct, resource, signal, callLimit);
    try {
      const value = await fn(call);
      call.end({ value }, classify, UNEXPECTED, (...end) => this.#finish(ticket, ...end));
      return value;
    } catch (error) {
      call.end<T>({ error }, classify, UNEXPECTED, (...end) => this.#finish(ticket, ...end));
      throw error;
    }
  }

  /**
   * Fetches under a permit, which is held until the body of the answer has ended: read to its end, cancelled or broken. A refusal
   * for too many calls gives it back with its head, and is returned like any other answer.
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
   * An answer whose body nobody reads holds its slot: read it, or cancel it.
   *
   * @param init as for `fetch`; its signal takes the call out of the queue too
   * @throws what `fetch` throws, and what {@link acquire} rejects with (as rejections)
   */
  async fetch(
    key: Key,
    input: RequestInfo | URL,
    init: RequestInit = {},
    options: Omit<RunOptions<Response>, "signal"> = {},
  ): Promise<Response> {
    const resource = this.#book.find(key);
    const own = typeof Request !== "undefined" && input instanceof Request ? input.signal : undefined;
    const signal = init.signal ?? own;
    const { classify, callTimeoutMs } = options;
    const callLimit = callTimeoutMs === undefined ? undefined : spanMs("callTimeoutMs", callTimeoutMs);
    const ticket = await this.#ask(resource, signal ? { ...options, signal } : options);
    const call = new CallUnderWay(this.#correct, resource, signal, callLimit);
    const finishAs = (...end: readonly [number, number, number, number]): void => this.#finish(ticket, ...end);
    let answer: Response;
    try {
      answer = await fetch(input, { ...init, signal: call.signal });
      call.observe(answer);
    } catch (error) {
      call.end<Response>({ error }, classify, PROVIDER_FAILURE, finishAs);
      throw error;
    }
    if (call.isRefused) {
      call.end({ value: answer }, classify, UNEXPECTED, finishAs);
      return answer;
    }
    let hasEnded = false;
    const ended = (how: BodyEnd, error?: unknown): void => {
      if (hasEnded) return;
      hasEnded = true;
      unread?.unregister(ended);
      const given = how === "given up" ? new DOMException("the body was given up", "AbortError") : error;
      const result = how === "whole" ? { value: answer } : { error: given };
      call.end<Response>(result, classify, PROVIDER_FAILURE, finishAs);
    };
    const held = holdBody(answer, ended);
    // The stream and not the answer: whoever reads it may have let go of that.
    if (!hasEnded && held.body) unread?.register(held.body, ended, ended);
    return held;
  }

  /**
   * What keeps the next call of a key from going out, as an object and in words; undefined if it could go out at once. Changes
   * nothing.
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
    const resource = this.#book.find(key);
    if (this.#isShut) return { kind: "shutdown", text: `${resource.name}: the gate is shut` };
    const numbers = gate.why(resource.number);
    return numbers && readWhy(resource, numbers);
  }

  /**
   * The state of a resource at this instant. Reading it changes nothing.
   *
   * @throws DeniedError for a key that was never registered
   */
  snapshot(key: Key): ResourceSnapshot {
    const gate = this.#live();
    const resource = this.#book.find(key);
    const numbers = gate.snapshot(resource.number);
    if (numbers === undefined) throw new DeniedError(resource.name, "unregistered");
    return readSnapshot(resource, numbers);
  }

  /** Everything that was registered, in order of registration. */
  resources(): Resource[] {
    this.#live();
    return this.#book.all();
  }

  /**
   * Tells `listener` of what happens from now on, in turns of its own. Events are made only if somebody wants their kind. A
   * listener that throws is reported once on the console, and disturbs nothing; it may call the gate.
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
   * Turns away everyone who waits, and everyone who asks from now on, with a `DeniedError` of reason `shutdown`. Permits that are
   * out stay valid.
   */
  shutdown(): void {
    this.#isShut = true;
    if (this.#live().shutdown() > 0) deliver();
    this.#changed();
  }

  /**
   * Shuts the gate down and gives back its memory. Permits that are out stay valid; anything else throws a `FreedError` from now
   * on. A second call does nothing. A gate that is forgotten is freed by the garbage collector.
   */
  free(): void {
    if (this.#gate === undefined) return;
    this.shutdown();
    this.#tell();
    this.#listeners.clear();
    this.#listen();
    this.#gate.free();
    this.#gate = undefined;
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
    return this.#book.find(key).number;
  }

  #live(): Gate {
    if (this.#gate === undefined) throw new FreedError("gate");
    return this.#gate;
  }

  /** A ticket, at once or as a promise. Throws and rejects as `acquire` does. */
  #ask(resource: Resource, options: Asking): number | Promise<number> {
    const gate = this.#live();
    const { signal, timeoutMs, estimate, tenant } = options;
    if (signal?.aborted) throw signal.reason;
    const longest = timeoutMs === undefined ? NaN : spanMs("timeoutMs", timeoutMs);
    const [input, output] = estimate === undefined ? NOTHING : readUsage("estimate", estimate);
    const group = this.#groupOf(tenant);
    options[beforeAsking]?.();
    const answer = gate.acquire(resource.number, group, longest, input, output);
    this.#changed();
    if (answer >= 0) return answer;
    if (answer === NONE) throw latestDenial(resource);
    return this.#wait(~answer, resource, signal);
  }

  async #wait(ticket: number, resource: Resource, signal: AbortSignal | undefined): Promise<number> {
    await wait(ticket, resource, signal);
    if (!signal?.aborted) return ticket;
    // Aborted after the answer was on its way.
    giveUp(ticket);
    this.#changed();
    throw signal.reason;
  }

  readonly #correct: Correct = (...said) => {
    // A call may outlive its gate.
    this.#gate?.correct(...said);
    this.#changed();
  };

  #finish(ticket: number, outcome: number, retryAfterMs: number, input: number, output: number): void {
    if (finish(ticket, outcome, retryAfterMs, input, output) > 0) deliver();
    this.#changed();
  }

  #groupOf(tenant: string | undefined): number {
    if (tenant === undefined) return -1;
    return this.#tenants.get(tenant) ?? this.#stranger(tenant);
  }

  #stranger(tenant: string): number {
    text("the name of a tenant", tenant);
    const isOneTooMany = this.#strangers >= MOST_STRANGERS;
    const known = isOneTooMany ? this.#tenants.get(OTHERS) : undefined;
    if (known !== undefined) return known;
    const name = isOneTooMany ? OTHERS : tenant;
    const group = this.#group(name, 1);
    this.#strangers += 1;
    this.#tenants.set(name, group);
    return group;
  }

  #group(name: string, weight: number): number {
    try {
      return this.#live().group(name, weight);
    } catch (refusal) {
      throw typeof refusal === "string" ? new RangeError(`weight is ${weight}; expected ${refusal.split("\n")[1]}`) : refusal;
    }
  }

  /** After each command: whoever listens is to hear of what it did. */
  #changed(): void {
    if (this.#stopWatching !== undefined) soon();
  }

  #listen(): void {
    const { bits } = this.#listeners;
    if (bits !== 0) this.#stopWatching ??= watch(() => this.#tell());
    else this.#stopWatching = void this.#stopWatching?.();
    this.#gate?.listen(bits);
  }

  #tell(): void {
    for (let numbers = this.#gate?.nextEvent(); numbers !== undefined; numbers = this.#gate?.nextEvent()) {
      const event = readEvent(numbers, this.#book);
      if (event !== undefined) this.#listeners.tell(event);
    }
  }
}

const NOTHING = [0, 0] as const;

/** Bodies that nobody can read any more: their calls count as given up. */
const unread =
  typeof FinalizationRegistry === "undefined"
    ? undefined
    : new FinalizationRegistry<(how: BodyEnd) => void>((ended) => ended("given up"));

/** A gate of the wasm module, once the defaults of its resources were tried. */
function checked(defaults: LimitNumbers, defaultTimeoutMs: number | undefined): Gate {
  const gate = new Gate(defaultTimeoutMs === undefined ? NaN : spanMs("defaultTimeoutMs", defaultTimeoutMs));
  const probe = new Gate(NaN);
  try {
    probe.register("p", "m", "chat", 1, 1, defaults.adaptive, defaults.algorithm, defaults.budgets);
    return gate;
  } catch (refusal) {
    gate.free();
    throw defaults.refused(refusal);
  } finally {
    probe.free();
  }
}
