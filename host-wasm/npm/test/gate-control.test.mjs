// Control of a gate: pause, resume, clear, another cap, and the state of its queue.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";
import { inspect } from "node:util";

import { RequestGate } from "tidegate";

import { clock, quiet } from "./lib/clock.mjs";

const KEY = "provider/model";

function gateOf(maxParallel = 2) {
  const gate = new RequestGate({ health: false });
  gate.register(KEY, { maxParallel, algorithm: { name: "fixed", limit: 1_000 } });
  return gate;
}

test("a paused gate grants no permit, why() reports the pause, and calls start in order after resume", async () => {
  const gate = gateOf();
  const held = await gate.acquire(KEY);
  gate.pause();
  const order = [];
  const waiting = [1, 2, 3].map((n) => gate.run(KEY, () => order.push(n)));
  assert.equal(gate.tryAcquire(KEY), undefined);
  held.finish("success");
  await quiet();
  assert.deepEqual([order, gate.size(), gate.pending()], [[], 3, 0]);
  assert.deepEqual(gate.why(KEY), { kind: "paused", text: `${KEY}: it is paused` });
  gate.resume();
  await Promise.all(waiting);
  assert.deepEqual([order, gate.why(KEY)], [[1, 2, 3], undefined]);
});

test("a pause affects one key, and timeouts continue to run", async (t) => {
  const time = clock(t);
  const gate = gateOf();
  gate.register("other", { maxParallel: 1 });
  gate.pause(KEY);
  assert.equal(await gate.run("other", () => "out"), "out");
  const late = assert.rejects(gate.acquire(KEY, { timeoutMs: 50 }), { reason: "queue_timeout" });
  await time.advance(60);
  await late;
  assert.throws(() => gate.pause("nothing"), { reason: "unregistered" });
});

test("a pause of all keys applies to keys registered later, until all or that key are resumed", async () => {
  const gate = gateOf();
  gate.pause();
  for (const key of ["later", "last"]) gate.register(key, { maxParallel: 1 });
  const [later, last] = ["later", "last"].map((key) => gate.run(key, () => key));
  await quiet();
  assert.deepEqual([gate.size(), gate.why("later")?.kind], [2, "paused"]);
  gate.resume("later");
  // Another registration of a model keeps what was set for it.
  gate.register("later", { maxParallel: 2 });
  gate.register({ provider: "later", model: "later", domain: "image" }, { maxParallel: 2 });
  assert.equal(await later, "later");
  assert.deepEqual([gate.size(), gate.why("later"), gate.why("last")?.kind], [1, undefined, "paused"]);
  gate.resume();
  assert.equal(await last, "last");
  gate.register("free", { maxParallel: 1 });
  assert.equal(gate.why("free"), undefined);
});

test("clear rejects waiting calls only", async () => {
  const gate = gateOf(1);
  gate.register("other", { maxParallel: 1 });
  const [held, other] = [await gate.acquire(KEY), await gate.acquire("other")];
  const { signal } = new AbortController();
  const waiting = [gate.acquire(KEY), gate.run(KEY, () => 1), gate.acquire(KEY, { signal })];
  const elsewhere = gate.acquire("other");
  await quiet();
  assert.equal(gate.clear(KEY), 3);
  for (const call of waiting) await assert.rejects(call, { name: "DeniedError", reason: "cancelled" });
  assert.deepEqual([gate.size(KEY), gate.pending(KEY), gate.size("other")], [0, 1, 1]);
  held.finish("success");
  other.finish("success");
  (await elsewhere).finish("success");
  assert.equal(await gate.run(KEY, () => "open"), "open");
  assert.equal(gate.clear(), 0);
});

test("clear rejects calls that wait for their next retry", async () => {
  const gate = gateOf(1);
  const failed = gate.run(KEY, () => Promise.reject(Object.assign(new Error("oops"), { status: 500 })), { retries: 3 });
  await quiet();
  assert.deepEqual([gate.size(), gate.pending()], [1, 0]);
  assert.equal(gate.clear(), 1);
  await assert.rejects(failed, { reason: "cancelled" });
  assert.equal(gate.size(), 0);
});

test("onIdle resolves once no call waits or runs, at once if that holds already", async () => {
  const gate = gateOf(2);
  await gate.onIdle();
  let made = 0;
  const calls = Array.from({ length: 50 }, () => gate.run(KEY, async () => void (made += 1)));
  await gate.onIdle(KEY);
  assert.deepEqual([made, gate.size(), gate.pending()], [50, 0, 0]);
  await Promise.all(calls);
  const held = await gate.acquire(KEY);
  const idle = gate.onIdle();
  gate.free();
  await assert.rejects(idle, { name: "FreedError" });
  held.finish("success");
});

test("setMaxParallel applies to waiting calls and keeps what the limit has learned", async () => {
  const gate = gateOf(1);
  const permits = [await gate.acquire(KEY)];
  const waiting = [gate.acquire(KEY), gate.acquire(KEY)];
  await quiet();
  assert.equal(gate.size(), 2);
  gate.setMaxParallel(KEY, 3);
  permits.push(...(await Promise.all(waiting)));
  assert.equal(gate.pending(), 3);
  gate.setMaxParallel(KEY, 1);
  assert.deepEqual(gate.why(KEY)?.kind, "provider_cap");
  for (const permit of permits) permit.finish("success");
  assert.equal(gate.snapshot(KEY).providerCap, 1);
  for (const odd of [0, -1, 1.5, "2"]) assert.throws(() => gate.setMaxParallel(KEY, odd), /maxParallel/);
});

test("a fixed limit without a number is maxParallel, also after setMaxParallel", async () => {
  const gate = new RequestGate();
  gate.register(KEY, { maxParallel: 8, algorithm: "fixed" });
  const calls = Array.from({ length: 20 }, () => gate.acquire(KEY));
  await quiet();
  assert.equal(gate.pending(), 8);
  gate.setMaxParallel(KEY, 16);
  await quiet();
  assert.equal(gate.pending(), 16);
  gate.setMaxParallel(KEY, 4);
  assert.equal(gate.snapshot(KEY).currentLimit, 4);
  for (const call of calls.slice(0, 16)) (await call).finish("success");
  await quiet();
  assert.equal(gate.pending(), 4);
  for (const call of calls.slice(16)) (await call).finish("success");
});

test("a call with a priority is rejected with a hint at tenants", async () => {
  const gate = gateOf(1);
  await assert.rejects(gate.run(KEY, () => {}, { priority: 1 }), {
    name: "TypeError",
    message: /^a call has no setting `priority` \(calls of a tenant with a large weight go first: `tenant: "urgent"` with `gate\.tenant\("urgent", 10\)`\); there are timeoutMs, /,
  });
});

test("a limit runs functions with their arguments, as p-limit does", async () => {
  const gate = gateOf(2);
  const limit = gate.limit(KEY, { timeoutMs: 60_000 });
  let most = 0;
  let out = 0;
  const work = async (a, b) => {
    most = Math.max(most, (out += 1));
    await quiet();
    out -= 1;
    return a + b;
  };
  assert.deepEqual(await Promise.all([1, 2, 3, 4, 5].map((n) => limit(work, n, 10))), [11, 12, 13, 14, 15]);
  assert.equal(most, 2);
  await assert.rejects(limit(() => Promise.reject(new Error("mine"))), /mine/);
  assert.throws(() => gate.limit("nothing"), { reason: "unregistered" });
  // Its functions receive no signal that a timeout could abort.
  assert.throws(() => gate.limit(KEY, { callTimeoutMs: 1 }), /callTimeoutMs/);
});

test("a single name is a key, and all texts show it as given", async () => {
  const gate = new RequestGate();
  const api = gate.register("api", { maxParallel: 1 });
  assert.equal(`${api}`, "api");
  const seen = new Set();
  gate.subscribe(({ key }) => seen.add(key));
  assert.equal(await gate.run("api", () => 1), 1);
  await quiet();
  assert.deepEqual([...seen], ["api"]);
  for (const odd of ["", "/", "a/", "/b"]) assert.throws(() => gate.register(odd, { maxParallel: 1 }), /a key must be/);
});

test("console.log shows the name of an object without its internals", async () => {
  const gate = gateOf();
  const [resource] = gate.resources();
  const permit = await gate.acquire(KEY);
  assert.equal(inspect(resource), `Resource "${KEY}"`);
  assert.equal(inspect({ permit }), `{ permit: Permit for "${KEY}" }`);
  permit.finish("success");
  assert.equal(inspect(permit), `Permit for "${KEY}" (finished)`);
  assert.equal(inspect(gate), `RequestGate for ${KEY}`);
});

test("require throws an error that names the import to use", () => {
  assert.throws(() => createRequire(import.meta.url)("tidegate"), /is an ES module.*await import\("tidegate"\)/);
});
