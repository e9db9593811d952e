// A limit that several processes share, over a real Redis server.

import assert from "node:assert/strict";
import { fork, spawn } from "node:child_process";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { Redis } from "ioredis";
import { createClient } from "redis";
import { DeniedError, RequestGate, ShareError } from "tidegate";

import { until } from "../../../tests/patience.mjs";
import { Provider } from "./lib/provider.mjs";
import { RedisServer } from "./lib/redis.mjs";

const KEY = "acme/m";
const LIMIT = 6;
/** A limit that is known: what goes beyond it is a fault of sharing. */
const FIXED = { maxParallel: LIMIT, algorithm: { name: "fixed", limit: LIMIT } };
const sharer = fileURLToPath(new URL("lib/sharer.mjs", import.meta.url));

let server;
before(async () => {
  server = await RedisServer.start();
});
after(() => server.stop());

let keys = 0;
/** Returns a key that no other test uses. */
const newKey = () => `acme/m${(keys += 1)}`;

/** Connects a client until the test ends. */
async function connect(t, client, { url } = server) {
  if (client === "ioredis") {
    const redis = new Redis(url).on("error", () => {});
    t.after(() => redis.disconnect());
    return redis;
  }
  const redis = await createClient({ url, socket: { reconnectStrategy: 50 } }).on("error", () => {}).connect();
  t.after(() => redis.destroy());
  return redis;
}

/** A gate with one key that shares its limit, until the test ends. */
async function share(t, key, options = {}, limits = FIXED) {
  const gate = new RequestGate();
  t.after(() => gate.free());
  gate.register(key, limits);
  const redis = options.redis ?? (await connect(t, "ioredis"));
  const shared = await gate.share(key, { name: "test", onLoss: "stop", ...options, redis });
  return { gate, shared };
}

const hasShare = ({ shared }, share) => until(() => shared.state(), (state) => state.hasLease && state.share === share);

/** Starts a process that calls the provider. */
async function start(t, client, key, provider, limits = FIXED) {
  const settings = { client, url: server.url, key, limits, onLoss: "stop", provider: provider.url, loops: 2 * LIMIT };
  const child = fork(sharer, [JSON.stringify(settings)]);
  t.after(() => child.kill("SIGKILL"));
  await once(child, "message");
  return {
    child,
    async state() {
      const answer = once(child, "message");
      child.send("state");
      return (await answer)[0];
    },
  };
}

test("two processes with two clients have no more calls in flight than one limit allows", async (t) => {
  const [provider, key] = [await Provider.start(), newKey()];
  t.after(() => provider.stop());
  const [first, second] = await Promise.all(["ioredis", "redis"].map((client) => start(t, client, key, provider)));
  await until(() => provider.answered, ({ ioredis = 0, redis = 0 }) => ioredis >= 50 && redis >= 50);
  const states = [await first.state(), await second.state()];
  assert.ok(provider.most <= LIMIT, `${provider.most}`);
  assert.deepEqual(states.map(({ members, limit, hasLease }) => [members, limit, hasLease]), [[2, LIMIT, true], [2, LIMIT, true]]);
  assert.equal(states.filter(({ isLeader }) => isLeader).length, 1);
  assert.match(states[0].leader, /^[0-9a-f]{8}$/);
  assert.equal(states[0].leader, states[1].leader);

  // One is killed while all slots are in use. The other one gets them.
  provider.isOpen = false;
  await until(() => provider.inFlight, (inFlight) => inFlight === LIMIT);
  second.child.kill("SIGKILL");
  provider.isOpen = true;
  await until(() => first.state(), ({ members, share }) => members === 1 && share === LIMIT);
  const before = provider.answered.ioredis;
  await until(() => provider.answered.ioredis, (answered) => answered >= before + 50);
  assert.ok(provider.most <= LIMIT, `${provider.most}`);

  const ended = once(first.child, "exit");
  first.child.send("leave");
  assert.deepEqual(await ended, [0, null]);
});

test("processes spend one budget, and a call that waits for it says whether the leader has it", async (t) => {
  const key = newKey();
  const requests = { dimension: "requests", limit: 4, windowMs: 3_600_000 };
  const limits = (budgets) => ({ ...FIXED, budgets });
  const both = [await share(t, key, {}, limits([requests])), await share(t, key, {}, limits([requests]))];
  await Promise.all(both.map((each) => hasShare(each, LIMIT / 2)));
  let started = 0;
  const call = ({ gate }) => gate.run(key, async () => (started += 1)).catch(() => {});
  for (const each of both) for (let i = 0; i < LIMIT / 2; i += 1) call(each);
  await until(() => started, (count) => count === 4);
  await until(() => both.map(({ gate }) => gate.why(key)?.kind), (kinds) => kinds.every((kind) => kind === "shared_budget"));
  assert.equal(started, 4);
  assert.deepEqual(both.map(({ gate }) => gate.why(key).isKnown), [true, true]);

  const tokens = { dimension: "total_tokens", limit: 1_000, windowMs: 60_000 };
  const { gate } = await share(t, key, {}, limits([tokens]));
  const why = await until(() => gate.why(key), (why) => why?.kind === "shared_budget" && !why.isKnown);
  assert.match(why.text, /the leading process does not have/);
});

test("a limit is learned together: a refusal of one process lowers the limit of all", async (t) => {
  const [provider, key] = [await Provider.start(4), newKey()];
  t.after(() => provider.stop());
  const limits = { maxParallel: 32, algorithm: "aimd" };
  const both = await Promise.all(["ioredis", "redis"].map((client) => start(t, client, key, provider, limits)));
  await until(() => provider.answered, ({ ioredis = 0, redis = 0 }) => ioredis >= 20 && redis >= 20);
  await until(async () => {
    const states = await Promise.all(both.map((each) => each.state()));
    return states.every(({ limit }) => limit < 32);
  });
  assert.ok(provider.refused > 0);
});

test("each value of onLoss does what it says while the server is down, and ends when it is back", async (t) => {
  const own = await RedisServer.start();
  t.after(() => own.stop());
  const open = { share: LIMIT / 2, stop: 0, alone: LIMIT };
  const pairs = await Promise.all(
    Object.keys(open).map(async (onLoss) => {
      const client = async (kind) => ({ redis: await connect(t, kind, own), onLoss });
      const key = newKey();
      return [await share(t, key, await client("ioredis")), await share(t, key, await client("redis"))];
    }),
  );
  const members = pairs.flat();
  const isWhole = () => until(() => members.map(({ shared }) => shared.state()), (states) => states.every((state) => state.hasLease && state.members === 2 && state.share === LIMIT / 2));
  await isWhole();
  await own.kill();
  const rooms = Object.values(open).flatMap((room) => [room, room]);
  // The lease lapses first. Then no call starts, and after that `onLoss` decides.
  const lost = await until(() => members.map(({ shared }) => shared.state()), (states) =>
    states.every((state, n) => !state.hasLease && state.ageMs > 7_000 && state.room === rooms[n]),
  );
  for (const state of lost) assert.match(state.text, /^no share for \d+ s, \d slots until it is back; last 3 of 6; the store: .+/);
  const [stopped] = pairs[1];
  const key = stopped.shared.resource;
  assert.equal(stopped.gate.tryAcquire(key), undefined);
  const why = stopped.gate.why(key);
  assert.equal(why.kind, "share");
  assert.match(why.text, /: this process has no slots of the shared limit: no share for \d+ s/);
  await own.restart();
  await isWhole();
  await until(() => stopped.shared.state(), ({ error }) => error === undefined);
});

test("why() of a share that is reached says how many of its calls wait for their bodies to be read", async (t) => {
  const key = newKey();
  const [first, second] = [await share(t, key), await share(t, key)];
  await Promise.all([first, second].map((each) => hasShare(each, LIMIT / 2)));
  t.mock.method(globalThis, "fetch", async () => new Response(new ReadableStream({ pull: (body) => body.enqueue(new Uint8Array(65_536)) })));
  // The first one uses its slots, so that the other one gets no more than its own.
  const used = await Promise.all(Array.from({ length: LIMIT / 2 }, () => first.gate.acquire(key)));
  const unread = Array.from({ length: LIMIT / 2 }, () => second.gate.fetch(key, "http://127.0.0.1/", {}, { bodyIdleMs: 600_000 }));
  const waits = second.gate.acquire(key);
  const why = await until(() => second.gate.why(key), (why) => why?.unreadBodies === LIMIT / 2);
  assert.equal(why.kind, "share");
  assert.match(why.text, /: its share of the limit is reached, and 3 are in flight: 3 of 6 slots, .*, and 3 calls wait for their response bodies to be read$/);
  for (const answer of await Promise.all(unread)) await answer.body.cancel();
  for (const permit of [...used, await waits]) permit.finish("success");
});

test("a process that leaves gives its share away at once, and denies its calls", async (t) => {
  const key = newKey();
  const [first, second] = [await share(t, key), await share(t, key)];
  await Promise.all([first, second].map((each) => hasShare(each, LIMIT / 2)));
  // The first one uses its slots, so that the other one gets no more than its own.
  const take = (each) => each.gate.acquire(key);
  const used = await Promise.all(Array.from({ length: LIMIT / 2 }, () => take(first)));
  const held = await Promise.all(Array.from({ length: LIMIT / 2 }, () => take(second)));
  const waits = take(second);
  waits.catch(() => {});
  await hasShare(second, LIMIT / 2);
  const why = second.gate.why(key);
  assert.equal(why.kind, "share");
  assert.match(why.text, /^acme\/m\d+: its share of the limit is reached, and 3 are in flight: 3 of 6 slots, 2 processes, leader [0-9a-f]{8}, decision \d+\.\d s ago$/);
  const queued = second.gate.run(key, () => "an answer");
  const leaves = second.shared.leave();
  const isLeft = (error) => error instanceof DeniedError && error.reason === "shutdown" && error.message.endsWith("this process has left the shared limit");
  await assert.rejects(waits, isLeft);
  await assert.rejects(queued, isLeft);
  await assert.rejects(second.gate.run(key, () => "an answer"), isLeft);
  await assert.rejects(second.gate.fetch(key, "data:,x"), isLeft);
  assert.throws(() => second.gate.tryAcquire(key), isLeft);
  assert.equal(second.gate.why(key).kind, "shutdown");
  assert.ok(second.shared.hasLeft);
  const redis = await connect(t, "redis");
  await assert.rejects(second.gate.share(key, { redis, name: "test" }), /calls are in flight since before it was left/);
  for (const permit of held) permit.finish("success");
  await leaves;
  for (const permit of used) permit.finish("success");
  await hasShare(first, LIMIT);
  assert.equal(second.shared.leave(), leaves, "a second call has no effect");
  const again = await second.gate.share(key, { redis, name: "test" });
  assert.equal(await second.gate.run(key, () => again.state().members), 2);
});

test("a call that was granted before the machine was suspended starts within a new share", async (t) => {
  const key = newKey();
  const { gate, shared } = await share(t, key);
  await hasShare({ shared }, LIMIT);
  const realNow = Date.now;
  t.after(() => (Date.now = realNow));
  const permit = await gate.acquire(key);
  assert.ok(permit.maySend());
  const started = [];
  const call = () => started.push(shared.state().hasLease);
  const suspend = () => {
    // The clock of the machine goes on while it is suspended, and `performance.now()` does not.
    Date.now = () => realNow() + 60_000;
    call();
  };
  await Promise.all([gate.run(key, suspend), gate.run(key, call), gate.run(key, call)]);
  assert.deepEqual(started, [false, true, true], "the first one has suspended the machine itself");
  permit.finish("success");
  assert.equal(permit.maySend(), false, "it is finished");
});

test("a shared limit keeps its algorithm when it is registered again, and takes another maximum", async (t) => {
  const key = newKey();
  const { gate, shared } = await share(t, key);
  await hasShare({ shared }, LIMIT);
  assert.throws(() => gate.register(key, { maxParallel: LIMIT }), /the limit is shared; expected the algorithm/);
  gate.register(key, { ...FIXED, maxParallel: 4 });
  await until(() => shared.state(), ({ limit }) => limit === 4);
  await assert.rejects(gate.share(key, { redis: await connect(t, "ioredis"), name: "test" }), /it is shared already/);
});

test("a server that cannot be used is an error at the start, and the limit stays as it was", async (t) => {
  const guarded = await RedisServer.start("--requirepass", "secret-password");
  const replica = await RedisServer.start("--replicaof", "127.0.0.1", "1");
  const cluster = await RedisServer.start("--cluster-enabled", "yes");
  const stopped = await RedisServer.start();
  t.after(() => Promise.all([guarded, replica, cluster, stopped].map((each) => each.stop())));
  const closed = await connect(t, "redis");
  closed.destroy();
  const ended = await connect(t, "ioredis");
  ended.disconnect();
  const idle = createClient({ url: stopped.url });
  const lost = [await connect(t, "ioredis", stopped), await connect(t, "redis", stopped)];
  await stopped.kill();
  const wrong = new Redis(guarded.url, { password: "wrong-password", retryStrategy: null }).on("error", () => {});
  const denied = (text) => async () => {
    throw new Error(text);
  };
  const cases = [
    [await connect(t, "ioredis", guarded), /it requires a password; give the client one \(NOAUTH/],
    [wrong, /it requires a password|rejects the user or the password|not connected/],
    [await connect(t, "ioredis", replica), /it is a replica that cannot be written to \(/],
    [await connect(t, "redis", cluster), /a Redis Cluster, expected a single primary/],
    [closed, /the client is not connected; call its `connect` before/],
    [idle, /the client is not connected; call its `connect` before/],
    [ended, /the client is not connected/],
    [lost[0], /`error` event has the reason/],
    [lost[1], /`error` event has the reason|check the host and the port/],
    [denied("NOPERM this user has no permissions"), /give it the permissions in docs\/sharing.md \(NOPERM/],
    [denied("connect ECONNREFUSED 127.0.0.1:1"), /check the host and the port of the client/],
    [() => new Promise(() => {}), /it does not answer/],
  ];
  const gate = new RequestGate();
  t.after(() => gate.free());
  gate.register(KEY, FIXED);
  for (const [redis, expected] of cases) {
    await assert.rejects(gate.share(KEY, { redis, name: "test" }), (error) => {
      assert.ok(error instanceof ShareError, error);
      assert.match(error.message, expected);
      assert.ok(error.message.startsWith("cannot share the limit of acme/m: the server: "), error.message);
      assert.doesNotMatch(error.message, /(secret|wrong)-password/);
      assert.equal(error.key, KEY);
      return true;
    });
  }
  assert.equal(await gate.run(KEY, () => "an answer"), "an answer");
});

test("options that are not valid are errors", async (t) => {
  const gate = new RequestGate();
  t.after(() => gate.free());
  gate.register(KEY, FIXED);
  const redis = async () => null;
  await assert.rejects(gate.share("acme/other", { redis, name: "test" }), DeniedError);
  for (const name of ["", "a b", "a}b", "n".repeat(65)]) await assert.rejects(gate.share(KEY, { redis, name }), RangeError);
  await assert.rejects(gate.share(KEY, { redis }), /name must be a string, not undefined/);
  await assert.rejects(gate.share(KEY, { redis, name: "test", onLoss: "wait" }), /expected "share", "stop" or "alone"/);
  await assert.rejects(gate.share(KEY, { redis, name: "test", url: "redis://a" }), /a share has no setting `url`/);
  const prefixed = { call: redis, status: "ready", options: { keyPrefix: "app:" } };
  await assert.rejects(gate.share(KEY, { redis: prefixed, name: "test" }), /has a `keyPrefix`.*expected one without/);
  for (const client of [undefined, "redis://a", {}, 7]) await assert.rejects(gate.share(KEY, { redis: client, name: "test" }), TypeError);
});

test("a process without work ends, and leaves before, if its client keeps it running no longer", async (t) => {
  const key = newKey();
  // Each command has a connection of its own, as over HTTP.
  const code = `
    import { Redis } from "ioredis";
    import { RequestGate } from "tidegate";
    const redis = async ([command, ...args]) => {
      const client = new Redis("${server.url}");
      try {
        return await client.call(command, args);
      } finally {
        client.disconnect();
      }
    };
    const gate = new RequestGate();
    gate.register("${key}", ${JSON.stringify(FIXED)});
    const shared = await gate.share("${key}", { redis, name: "test" });
    await gate.run("${key}", () => "an answer");
    console.log(shared.state().share);`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", code], { stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => child.kill("SIGKILL"));
  const ended = once(child, "exit");
  let out = "";
  child.stdout.on("data", (text) => (out += text));
  assert.deepEqual(await ended, [0, null]);
  assert.equal(out.trim(), `${LIMIT}`);
  const decision = JSON.parse(server.send("HGET", `tg2:{test:${key}/chat}:state`, "decision"));
  assert.deepEqual([decision.leader_leaves, decision.shares], [true, {}]);
});
