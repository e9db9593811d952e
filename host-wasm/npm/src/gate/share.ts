/// <reference lib="esnext.disposable" preserve="true" />
/** A limit that several processes share. */

import { DeniedError, onlyKnown, ShareError, shown } from "../errors.js";
import { inspect, type Resource } from "./keys.js";
import { messageOf, type RedisClient, Store, unref } from "./store.js";
import type { Gate, Waiter } from "./tickets.js";
import type { ShareState } from "../wasm/tidegate.js";

export type { ShareState };

/**
 * What a process does when it has lost the others for more than five to ten seconds: `share`: calls start within an
 * equal part of the last limit, and below it within a limit that the process learns by itself. `stop`: no call
 * starts. `alone`: calls start as if nothing were shared.
 */
export type OnLoss = "share" | "stop" | "alone";

/** Options of {@link RequestGate.share}. */
export interface ShareOptions {
  /**
   * How commands reach the Redis or Valkey server that all processes use: a client of `redis` (node-redis) or `ioredis`
   * that the program connects and closes, or a function that sends a command.
   */
  readonly redis: RedisClient;
  /** Who shares: the same in all processes. 1 to 64 letters, digits and the characters `-`, `_` and `.`. */
  readonly name: string;
  /** What happens when the others are lost. Default: `share`. */
  readonly onLoss?: OnLoss | undefined;
}

const SHARE_NAMES = ["redis", "name", "onLoss"];
const ON_LOSS: readonly string[] = ["share", "stop", "alone"];

/** How long {@link SharedLimit.leave} waits for calls in flight and for the server. */
const LEAVE_TIMEOUT_MS = 2_000;

/** How long a process that has left tries to report that its calls have ended. */
const GIVE_UP_MS = 10_000;

/** The two roles of a process: member and leader. Each has one command under way at most. */
const ROLES = [0, 1] as const;

/** `Symbol.asyncDispose`, or a substitute where it is missing: only `await using` then needs a polyfill. */
const asyncDispose: typeof Symbol.asyncDispose =
  Symbol.asyncDispose ?? (Symbol.for("Symbol.asyncDispose") as typeof Symbol.asyncDispose);

type CoreLimit = ReturnType<Gate["shareLimit"]>;

/** The part of this process in a limit that several processes share. {@link RequestGate.share} returns it. */
export class SharedLimit {
  /** The resource whose limit is shared. */
  readonly resource: Resource;
  /** The name under which it is shared. */
  readonly name: string;
  /** @internal Requests a permit again for a call whose lease has lapsed before it started. The waiter has none. */
  readonly acquireAgain: (waiter: Waiter) => void;
  readonly #core: CoreLimit;
  readonly #store: Store;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #hasLeft = false;
  #leftAtMs = 0;
  #left: Promise<void> | undefined;
  #hasEnded = false;
  #onEnd: () => void = () => {};

  /** @internal */
  constructor(resource: Resource, name: string, core: CoreLimit, store: Store, acquireAgain: (waiter: Waiter) => void) {
    this.resource = resource;
    this.name = name;
    this.#core = core;
    this.#store = store;
    this.acquireAgain = acquireAgain;
    atEndOfProcess(this);
    this.#drive();
  }

  /** Returns the state now. */
  state(): ShareState {
    return this.#core.state();
  }

  /** @internal Whether this process has left the limit, and no command follows. */
  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Whether this process has left the limit, or is about to: no call of the resource starts. */
  get hasLeft(): boolean {
    return this.#hasLeft;
  }

  /**
   * Leaves the limit: the other processes get the share of this one at once. Waiting and later calls of the resource are
   * denied. Resolves when the calls in flight have ended and the server has the last report, after two seconds at most. Call it
   * before the client is closed. Without it, the others get the share after about five seconds.
   */
  leave(): Promise<void> {
    this.#left ??= new Promise((resolve) => {
      // It keeps Node running, so that the last commands are sent.
      const timer = setTimeout(resolve, LEAVE_TIMEOUT_MS);
      this.#onEnd = () => {
        clearTimeout(timer);
        resolve();
      };
      this.beginToLeave();
    });
    return this.#left;
  }

  /** @internal Leaves without keeping Node running. */
  beginToLeave(): void {
    if (this.#hasEnded) this.#onEnd();
    if (this.#hasLeft) return;
    this.#hasLeft = true;
    this.#leftAtMs = performance.now();
    const { resource } = this;
    resource.registry.pauses.deny("shutdown", resource);
    resource.tickets.clear((each) => each === resource, () => this.denial());
    this.#core.leave();
    this.#drive();
  }

  /** The same as {@link leave}. */
  [asyncDispose](): Promise<void> {
    return this.leave();
  }

  /** @internal Returns the error of calls once the process has left. */
  denial(): DeniedError | undefined {
    return this.#hasLeft ? new DeniedError(this.resource.name, "shutdown", undefined, LEFT) : undefined;
  }

  /** @internal */
  [inspect](): string {
    return `SharedLimit of ${JSON.stringify(this.resource.name)} (${this.#hasEnded ? "left" : this.state().text})`;
  }

  /** Sends the commands that are due, and arms the timer for the next ones. */
  readonly #drive = (): void => {
    clearTimeout(this.#timer);
    if (this.#hasEnded) return;
    this.#core.update();
    for (const role of ROLES) {
      const command = this.#core.pollCommand(role);
      if (command !== undefined) void this.#carryOut(role, command);
    }
    if (this.#core.hasEnded()) return this.#end();
    const dueInMs = this.#core.dueInMs();
    if (Number.isNaN(dueInMs)) return;
    this.#timer = setTimeout(this.#drive, Math.ceil(dueInMs));
    // A call that waits, or is in flight, keeps Node running by itself.
    unref(this.#timer);
  };

  #end(): void {
    this.#hasEnded = true;
    open.delete(this);
    this.#onEnd();
  }

  async #carryOut(role: number, command: string[]): Promise<void> {
    try {
      this.#core.onReply(role, await this.#store.run(command));
    } catch (error) {
      this.#core.onFailure(role, messageOf(error));
      // The others have reclaimed the share by now. A client that was closed would never send the last report.
      if (this.#hasLeft && performance.now() - this.#leftAtMs > GIVE_UP_MS) return this.#end();
    }
    this.#drive();
  }
}

const LEFT = "this process has left the shared limit";

/**
 * @internal Shares the limit of a resource: see {@link RequestGate.share}. `gate` returns the core's gate, or throws
 * once that is freed.
 */
export async function shareLimit(
  resource: Resource,
  options: Readonly<ShareOptions>,
  gate: () => Gate,
  acquireAgain: (waiter: Waiter) => void,
): Promise<SharedLimit> {
  const { name, onLoss = "share" } = options;
  const store = await storeFor(resource, options);
  const { shared: before } = resource;
  if (before !== undefined && !before.hasEnded) {
    const state = before.hasLeft ? "calls are in flight since before it was left; share it when they have ended" : "it is shared already";
    throw new ShareError(resource.name, state);
  }
  const { provider, model, domain } = resource;
  const core = gate().shareLimit(provider, model, domain, name, onLoss);
  resource.shared = new SharedLimit(resource, name, core, store, acquireAgain);
  return resource.shared;
}

/**
 * Checks the options of a share, and that its server can be used.
 *
 * @throws TypeError and RangeError for options, ShareError for a server that cannot be used
 */
async function storeFor(resource: Resource, options: ShareOptions): Promise<Store> {
  onlyKnown("a share", options, SHARE_NAMES);
  const { redis, name, onLoss } = options;
  const { module } = resource.tickets;
  if (typeof name !== "string") throw new TypeError(`name must be a string, not ${shown(name)}`);
  if (!module.isShareName(name)) {
    throw new RangeError(`name is ${shown(name)}; expected 1 to 64 letters, digits and the characters "-", "_" and "."`);
  }
  if (onLoss !== undefined && !ON_LOSS.includes(onLoss)) {
    throw new RangeError(`onLoss is ${shown(onLoss)}; expected "share", "stop" or "alone"`);
  }
  const store = new Store(redis);
  try {
    await store.check(module.storeCheck(name), module.clusterInfo(), (reply) => module.isCluster(reply));
  } catch (error) {
    throw new ShareError(resource.name, `the server: ${messageOf(error)}`);
  }
  return store;
}

/** The part of Node's `process` that is used. */
interface Process {
  once?(event: "beforeExit", listener: () => void): void;
}

/** The shared limits that this process has not left. */
const open = new Set<SharedLimit>();
let isListening = false;

/** Leaves a limit when the event loop of Node is empty, if the client can still send commands then. */
function atEndOfProcess(limit: SharedLimit): void {
  open.add(limit);
  if (isListening) return;
  isListening = true;
  (globalThis as { readonly process?: Process }).process?.once?.("beforeExit", () => {
    for (const each of open) each.beginToLeave();
  });
}
