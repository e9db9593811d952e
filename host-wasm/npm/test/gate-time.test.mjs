// Time: one timer for a gate, correct in throttled tabs, after sleep, and for waits of any length.

import assert from "node:assert/strict";
import { test } from "node:test";

import { RequestGate } from "tidegate";

import { clock, quiet, state } from "./lib/clock.mjs";

const KEY = "provider/model";

// AIMD keeps its limit at the cap until a call is rate limited: these tests are about the gate.
async function paused(t, ms, waiting = 1) {
  const time = clock(t);
  const gate = new RequestGate({ maxCooldownMs: 1e10 });
  gate.register(KEY, { maxParallel: 8, algorithm: "aimd" });
  const refused = await gate.acquire(KEY);
  refused.finish({ outcome: "rate_limited", retryAfterMs: ms });
  const calls = Array.from({ length: waiting }, () => gate.acquire(KEY));
  await quiet();
  return { time, gate, calls };
}

const end = async (calls) => {
  for (const call of calls) (await call).finish("success");
};

test("a thousand waiting calls have one timer, rounded up", async (t) => {
  const { time, calls, gate } = await paused(t, 20.25, 3);
  const late = Array.from({ length: 1_000 }, (_, n) => assert.rejects(gate.acquire(KEY, { timeoutMs: 5 + n / 1_000 })));
  await quiet();
  assert.equal(time.armed, 1);
  assert.ok(time.delays.every(Number.isInteger), `${time.delays}`);
  await time.advance(7);
  await Promise.all(late);
  assert.equal(time.armed, 1);
  await time.advance(14);
  await end(calls);
  assert.equal(time.armed, 0, "nothing waits, so no timer is armed");
});

test("without waiting calls there is no timer", async (t) => {
  const time = clock(t);
  const gate = new RequestGate();
  gate.register(KEY, { maxParallel: 1, algorithm: "aimd" });
  (await gate.acquire(KEY)).finish("rate_limited");
  await quiet();
  assert.equal(time.armed, 0);
});

test("a timer that fires early is armed again, and no call starts early", async (t) => {
  const { time, calls } = await paused(t, 100);
  time.pass(99.5);
  await time.fire(1);
  assert.equal(await state(calls[0]), "pending");
  assert.equal(time.armed, 1);
  await time.advance(1);
  await end(calls);
});

test("a timer that fires late, as in a hidden tab, starts all due calls at once", async (t) => {
  const { time, calls } = await paused(t, 100, 3);
  time.pass(60_000);
  assert.equal(await state(calls[0]), "pending");
  await time.fire();
  await end(calls);
});

test("after the machine has slept, the next command uses the current time", async (t) => {
  const { time, gate, calls } = await paused(t, 100);
  time.pass(8 * 3_600_000);
  const fresh = gate.acquire(KEY);
  await end([...calls, fresh]);
});

test("a wait longer than a timer's maximum is split", async (t) => {
  const days = 40 * 86_400_000;
  const { time, calls } = await paused(t, days);
  assert.deepEqual(time.delays, [2 ** 31 - 1]);
  await time.advance(days - 1);
  assert.equal(await state(calls[0]), "pending");
  // Rounded up twice.
  await time.advance(3);
  await end(calls);
  assert.ok(time.delays.every((delay) => delay <= 2 ** 31 - 1));
});

test("a clock that runs backwards has no effect", async (t) => {
  const { time, gate, calls } = await paused(t, 50);
  time.pass(-40);
  assert.equal(gate.tryAcquire(KEY), undefined);
  await time.advance(91);
  await end(calls);
});

test("a ramp increases the limit over time", async (t) => {
  const time = clock(t);
  const gate = new RequestGate();
  gate.register(KEY, { maxParallel: 10, rampMs: 1_000 });
  const calls = Array.from({ length: 10 }, () => gate.acquire(KEY));
  await quiet();
  assert.equal(gate.snapshot(KEY).inFlight, 1);
  assert.equal(gate.snapshot(KEY).ramp.target, 10);
  assert.equal(gate.why(KEY).kind, "limit");
  assert.ok(gate.why(KEY).changesInMs > 0);
  await time.advance(500);
  const half = gate.snapshot(KEY).inFlight;
  assert.ok(half > 3 && half < 8, `${half}`);
  await time.advance(600);
  await end(calls);
  assert.equal(gate.snapshot(KEY).ramp, undefined);
});

test("synchronous work of the program does not count as latency of the provider", async (t) => {
  const time = clock(t);
  const gate = new RequestGate();
  gate.register(KEY, { maxParallel: 16 });
  let made = 0;
  const call = async () => {
    await new Promise((resolve) => setTimeout(resolve, 10));
    made += 1;
  };
  for (let n = 0; n < 200; n += 1) {
    void gate.run(KEY, call);
    time.pass(5);
  }
  await time.advance(300);
  assert.equal(made, 200, "calls of 10 ms, 16 at once, whatever time it took to ask for them");
});

test("a command takes effect after the calls made before it in the same turn", async () => {
  const gate = new RequestGate();
  gate.register(KEY, { maxParallel: 1 });
  const calls = [1, 2, 3].map(() => gate.run(KEY, () => {}));
  assert.equal(gate.tryAcquire(KEY), undefined);
  assert.deepEqual([gate.pending(), gate.size()], [1, 2]);
  const late = gate.run(KEY, () => {});
  gate.shutdown();
  await assert.rejects(late, { reason: "shutdown" });
  assert.equal((await Promise.allSettled(calls)).filter(({ status }) => status === "fulfilled").length, 1);
});

test("a signal aborted before its call has requested a permit removes the call", async () => {
  const gate = new RequestGate();
  gate.register(KEY, { maxParallel: 1 });
  const controller = new AbortController();
  const call = gate.run(KEY, () => "made", { signal: controller.signal });
  controller.abort(new Error("not any more"));
  await assert.rejects(call, /not any more/);
  assert.equal(gate.pending() + gate.size(), 0);
});
