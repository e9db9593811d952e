/** Keys, and the resources that a gate registers for them. */

import { DeniedError, onlyKnown, text } from "../errors.js";
import { Pauses } from "./pauses.js";
import type { SharedLimit } from "./share.js";
import type { Tickets } from "./tickets.js";

/**
 * A provider's model, called for one kind of work. Calls of one key share one adaptive limit; all domains of
 * one model share its `maxParallel`.
 */
export interface ResourceKey {
  /** The provider. Must not contain `/`. */
  readonly provider: string;
  /** The model's id. May contain `/`. */
  readonly model: string;
  /** The kind of call: `chat`, `embedding`, `image`, `healthcheck` or a name of your own. Default: `chat`. */
  readonly domain?: string | undefined;
}

/**
 * A string `"provider/model"`, split at the first `/`; or one name, such as `"api"`, for a service without
 * models, which is then also the name of its model; or an object; or a resource that `register` returned.
 */
export type Key = string | ResourceKey;

/** @internal The method that Node, Deno and Bun call to show an object with `console.log`. */
export const inspect: unique symbol = Symbol.for("nodejs.util.inspect.custom") as never;

/** A registered key. It is the fastest form of a key. */
export class Resource implements ResourceKey {
  readonly provider: string;
  readonly model: string;
  readonly domain: string;
  /** `provider/model`, followed by the domain unless that is `chat`. */
  readonly name: string;
  /** @internal Its number in the core's gate. */
  readonly number: number;
  /** @internal The registry that it belongs to. */
  readonly registry: ResourceRegistry;
  /** @internal Bodies that hold a slot and wait for their reader. */
  unread = 0;
  /** @internal Set once its limit is shared. */
  shared: SharedLimit | undefined = undefined;
  /** @internal The calls of its gate's module. */
  readonly tickets: Tickets;

  /** @internal */
  constructor(registry: ResourceRegistry, number: number, key: FullKey) {
    this.registry = registry;
    this.tickets = registry.tickets;
    this.number = number;
    this.provider = key.provider;
    this.model = key.model;
    this.domain = key.domain;
    this.name = key.domain === "chat" ? modelName(key) : `${modelName(key)} (${key.domain})`;
  }

  toString(): string {
    return this.name;
  }

  /** @internal */
  [inspect](): string {
    return `Resource ${JSON.stringify(this.name)}`;
  }
}

/** Returns the display name of a model: one name if provider and model are the same. */
function modelName({ provider, model }: { readonly provider: string; readonly model: string }): string {
  return provider === model ? provider : `${provider}/${model}`;
}

/** @internal A key with all its parts. */
export interface FullKey {
  readonly provider: string;
  readonly model: string;
  readonly domain: string;
}

/** @internal Reads a key. */
export function readKey(key: Key): FullKey {
  if (typeof key === "string") {
    const slash = key.indexOf("/");
    if (slash > 0 && slash < key.length - 1) {
      return { provider: key.slice(0, slash), model: key.slice(slash + 1), domain: "chat" };
    }
    if (slash < 0 && key !== "") return { provider: key, model: key, domain: "chat" };
    throw new TypeError(`a key must be "provider/model" or one name without "/", not ${JSON.stringify(key)}`);
  }
  if (typeof key !== "object" || key === null) {
    throw new TypeError(`a key must be "provider/model" or an object with provider and model`);
  }
  if (!(key instanceof Resource)) onlyKnown("a key", key, ["provider", "model", "domain"]);
  const provider = text("the provider of a key", key.provider);
  if (provider.includes("/")) throw new TypeError(`the provider of a key must not contain "/", not ${JSON.stringify(provider)}`);
  return { provider, model: text("the model of a key", key.model), domain: text("the domain of a key", key.domain ?? "chat") };
}

/** @internal The resources of one gate, by name and by number. */
export class ResourceRegistry {
  /** The calls of the gate's module. */
  readonly tickets: Tickets;
  /** Calls that wait for their next retry. */
  readonly pauses = new Pauses(() => this.tickets.changed());
  /** Passes the rate limits that a response stated to the core. */
  readonly applyRateLimits: (ticket: number, notes: Float64Array) => void;
  /** Called when a body has released its slot because it was not read for `idleMs`. */
  readonly onBodyUnread: (resource: Resource, idleMs: number) => void;
  readonly #byName = new Map<string, Resource>();
  readonly #byNumber: Resource[] = [];
  /** `provider/model` in order of registration, as the core numbers them. */
  readonly #models: string[] = [];

  constructor(tickets: Tickets, applyRateLimits: ResourceRegistry["applyRateLimits"], onBodyUnread: ResourceRegistry["onBodyUnread"]) {
    this.tickets = tickets;
    this.applyRateLimits = applyRateLimits;
    this.onBodyUnread = onBodyUnread;
  }

  /** Returns whether a resource of the key's model was added. */
  hasModel(key: FullKey): boolean {
    return this.#models.includes(modelName(key));
  }

  /** Adds a resource that the gate has registered. */
  add(key: FullKey, number: number): Resource {
    const name = modelName(key);
    if (!this.#models.includes(name)) this.#models.push(name);
    let resource = this.#byNumber[number];
    if (resource === undefined) {
      resource = new Resource(this, number, key);
      this.#byNumber[number] = resource;
      this.#byName.set(key.domain === "chat" ? name : `${key.domain}\n${name}`, resource);
    }
    return resource;
  }

  /** Returns the resource of a key. Throws for an unregistered key. */
  find(key: Key): Resource {
    if (key instanceof Resource && key.registry === this) return key;
    const found = typeof key === "string" ? this.#byName.get(key) : undefined;
    return found ?? this.#search(key);
  }

  #search(key: Key): Resource {
    const full = readKey(key);
    const { domain } = full;
    const name = modelName(full);
    const found = this.#byName.get(domain === "chat" ? name : `${domain}\n${name}`);
    if (found !== undefined) return found;
    throw new DeniedError(domain === "chat" ? name : `${name} (${domain})`, "unregistered");
  }

  /** Returns the resource of a number. */
  resource(number: number): Resource | undefined {
    return this.#byNumber[number];
  }

  /** Returns the provider and model of a number. */
  model(number: number): string | undefined {
    return this.#models[number];
  }

  /** Returns all resources, in order of registration. */
  all(): Resource[] {
    return this.#byNumber.slice();
  }
}
