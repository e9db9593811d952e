/** What a call is for: keys, and the resources that a gate has made of them. */

import { DeniedError, onlyKnown, text } from "../errors.js";
import { Pauses } from "./pauses.js";
import type { Tickets } from "./tickets.js";

/**
 * A provider's model, called for one kind of work. Calls of one key share one adaptive limit; all domains of
 * one model share its `maxParallel`.
 */
export interface ResourceKey {
  /** Who serves it. Holds no `/`. */
  readonly provider: string;
  /** The model's id; may hold `/`. */
  readonly model: string;
  /** The kind of call: `chat`, `embedding`, `image`, `healthcheck` or a name of your own. Default: `chat`. */
  readonly domain?: string | undefined;
}

/**
 * `"provider/model"`, what is before the first `/` being the provider; or one name, such as `"api"`, for a
 * service that has no models: its model is then called the same; or an object; or what `register` returned.
 */
export type Key = string | ResourceKey;

/** @internal How Node, Deno and Bun ask an object what `console.log` is to show of it. */
export const inspect: unique symbol = Symbol.for("nodejs.util.inspect.custom") as never;

/** A key that was registered with a gate. Wherever a key is wanted, this is the fastest form of it. */
export class Resource implements ResourceKey {
  readonly provider: string;
  readonly model: string;
  readonly domain: string;
  /** `provider/model`, with the domain behind it unless it is `chat`. */
  readonly name: string;
  /** @internal The gate's number of it. */
  readonly number: number;
  /** @internal The book it stands in. */
  readonly registry: ResourceRegistry;
  /** @internal Bodies that hold a slot and wait for their reader. */
  unread = 0;
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

/** What a model is called: a service of one name is called that. */
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
  if (provider.includes("/")) throw new TypeError(`the provider of a key holds no "/": ${JSON.stringify(provider)}`);
  return { provider, model: text("the model of a key", key.model), domain: text("the domain of a key", key.domain ?? "chat") };
}

/** @internal The resources of one gate, by name and by number. */
export class ResourceRegistry {
  /** The calls of the gate's module. */
  readonly tickets: Tickets;
  /** Calls that wait until they are made again. */
  readonly pauses = new Pauses(() => this.tickets.changed());
  /** Takes over what the answer to the call of a ticket states of the rates. */
  readonly applyRateLimits: (ticket: number, notes: Float64Array) => void;
  /** A body gave its slot back because nobody read it for this long. */
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

  /** Writes down what the gate has registered. */
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

  /** What a key names; throws for one that nobody registered. */
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

  /** The resource of a number. */
  resource(number: number): Resource | undefined {
    return this.#byNumber[number];
  }

  /** The provider and model of a number. */
  model(number: number): string | undefined {
    return this.#models[number];
  }

  /** All resources, in order of registration. */
  all(): Resource[] {
    return this.#byNumber.slice();
  }
}
