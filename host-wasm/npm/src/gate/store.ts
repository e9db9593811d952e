/** The store of shared limits: a Redis or Valkey server, through a client of the program. */

import { inWords, shown } from "../errors.js";

/** A client of the package `redis` (node-redis). */
export interface NodeRedisClient {
  sendCommand(args: string[]): Promise<unknown>;
  readonly isReady: boolean;
}

/** A client of the package `ioredis`, without a `keyPrefix`. */
export interface IoRedisClient {
  call(command: string, args: string[]): Promise<unknown>;
  readonly status: string;
}

/**
 * Sends one command, its name and arguments, and resolves with the reply as the server gave it: strings, numbers,
 * `null`, and arrays of them. Rejects if the server replies with an error.
 */
export type SendCommand = (args: string[]) => Promise<unknown>;

/** How commands reach the server: a connected client, or a function. */
export type RedisClient = NodeRedisClient | IoRedisClient | SendCommand;

/**
 * How long one command may take. It is below the time after which a process takes the lead, so that one lost reply
 * does not replace the leader.
 */
const STEP_TIMEOUT_MS = 1_000;

/** @internal The replies that a server gives to a client, as texts. A map is its keys and values in turn. */
export type Texts = (string | null)[];

/** @internal */
export class Store {
  readonly #send: SendCommand;
  /** Whether a command would be sent now. A client that is not connected would keep it, and all later ones. */
  readonly #isReady: () => boolean;

  /** @throws TypeError for a value that is no client */
  constructor(client: RedisClient) {
    if (typeof client === "function") {
      this.#send = client;
      this.#isReady = () => true;
    } else if (isObject(client) && "call" in client && typeof client.call === "function") {
      const { keyPrefix } = (client as { readonly options?: { readonly keyPrefix?: unknown } }).options ?? {};
      if (keyPrefix) {
        throw new TypeError("the client has a `keyPrefix`, so it would share with no other process; expected one without");
      }
      this.#send = ([command = "", ...args]) => client.call(command, args);
      this.#isReady = () => client.status === "ready";
    } else if (isObject(client) && "sendCommand" in client && typeof client.sendCommand === "function") {
      this.#send = (args) => client.sendCommand(args);
      this.#isReady = () => client.isReady !== false;
    } else {
      throw new TypeError(
        `redis must be a client of \`redis\` or \`ioredis\`, or a function that sends a command, not ${shown(client)}`,
      );
    }
  }

  /** Sends a command to a client that is connected. Rejects with an `Error` for people. */
  async run(command: string[]): Promise<Texts> {
    if (!this.#isReady()) throw new Error("the client is not connected");
    return textsOf(await within(this.#send(command), true));
  }

  /**
   * Checks that the server can be written to and is no node of a cluster. Rejects with an `Error` that has what the
   * server expects.
   */
  async check(check: string[], clusterInfo: string[], isCluster: (reply: Texts) => boolean): Promise<void> {
    try {
      // The client may still be connecting. The timer keeps Node running.
      await within(this.#send(check), false);
    } catch (error) {
      throw new Error(explained(messageOf(error)));
    }
    // A server that does not permit the command is taken for no node of a cluster.
    const info = await this.run(clusterInfo).catch((): Texts => []);
    if (isCluster(info)) throw new Error(CLUSTER);
  }
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

/** Settles as `reply` does, or rejects after {@link STEP_TIMEOUT_MS}. `isIdle`: the timer does not keep Node running. */
function within(reply: PromiseLike<unknown>, isIdle: boolean): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const late = (): void => reject(new Error(`it did not answer within ${inWords(STEP_TIMEOUT_MS)}`));
    const timer = setTimeout(late, STEP_TIMEOUT_MS);
    if (isIdle) unref(timer);
    Promise.resolve(reply).then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

/** @internal Lets Node end while a timer is armed. Other platforms have no such timers. */
export function unref(timer: unknown): void {
  (timer as { unref?: () => void }).unref?.();
}

/** @internal Returns the message of an error. Its other properties may have a command with a password. */
export function messageOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  // Node connects to each address of a host, and puts the errors into one without a message.
  const [first] = error instanceof AggregateError ? error.errors : [];
  return message === "" && first instanceof Error ? first.message : message;
}

/** Returns a reply as its texts. Clients give a map as an object, a `Map` or an array, by their version and settings. */
function textsOf(reply: unknown): Texts {
  if (reply === null || reply === undefined || typeof reply === "boolean") return [null];
  if (typeof reply !== "object") return [String(reply)];
  if (reply instanceof String) return [reply.valueOf()];
  if (reply instanceof Uint8Array) return [new TextDecoder().decode(reply)];
  if (reply instanceof Error) throw reply;
  if (Array.isArray(reply)) return reply.flatMap(textsOf);
  const fields = reply instanceof Map ? [...reply] : Object.entries(reply);
  return fields.flat().flatMap(textsOf);
}

const CLUSTER = "it is a node of a Redis Cluster, expected a single primary";
const NO_PERMISSION = "the user of the client may not do this; give it the permissions in docs/sharing.md";
const UNREACHABLE = "it cannot be reached; check the host and the port of the client";

/** What an error at the start means, by a part of its text in lower case. */
const MEANINGS: readonly (readonly [string, string])[] = [
  // The key belongs to another node, or to none.
  ["moved", CLUSTER],
  ["clusterdown", CLUSTER],
  ["readonly", "it is a replica that cannot be written to"],
  ["wrongpass", "it rejects the user or the password of the client; check both"],
  ["noauth", "it requires a password; give the client one"],
  ["unknown command", "it is no server with scripts"],
  ["noperm", NO_PERMISSION],
  ["the user executing the script can't run", NO_PERMISSION],
  ["econnrefused", UNREACHABLE],
  ["enotfound", UNREACHABLE],
  ["etimedout", UNREACHABLE],
  ["client is closed", "the client is not connected; call its `connect` before"],
  ["connection is closed", "the client is not connected; its `error` event has the reason"],
  ["max retries per request", "the client does not connect; its `error` event has the reason"],
  ["did not answer", "it does not answer; check that the client can connect: its `error` event has the reason"],
];

function explained(why: string): string {
  const text = why.toLowerCase();
  const meaning = MEANINGS.find(([part]) => text.includes(part));
  return meaning === undefined ? why : `${meaning[1]} (${why})`;
}
