// Events: what happened, told to whoever wants to know.

import assert from "node:assert/strict";
import { test } from "node:test";

import { GATE_EVENT_KINDS, RequestGate } from "tidegate";

import { clock, quiet } from "./lib/clock.mjs";

const KEY = "provider/model";

// AIMD, whose limit stands at the cap until a call is refused: what is tested here is the gate.
const gateOf = (maxParallel, limits = {}) => {
  const gate = new RequestGate();
  gate.register(KEY, { maxParallel, algorithm: "aimd", ...limits });
  return gate;
};

function listen(gate, kinds) {
  const events = [];
  const stop = gate.subscribe((event) => events.push(event), kinds && { kinds });
  return { events, stop, kinds: () => events.map(({ kind }) => kind) };
}

test("a call that waits tells its whole story", async () => {
  const gate = gateOf(1);
  const heard = listen(gate);
  const held = await gate.acquire(KEY);
  const waiting = gate.acquire(KEY);
  await quiet();
  held.finish("success");
  (await waiting).finish({ outcome: "rate_limited", retryAfterMs: 60_000 });
  await quiet();
  assert.deepEqual(heard.kinds(), [
    ...["wait_started", "wait_completed", "lease_acquired", "call_started"],
    ...["queue_formed", "wait_started"],
    ...["call_completed", "lease_released", "wait_completed", "lease_acquired", "call_started", "queue_drained"],
    ...["call_completed", "rate_limited", "lease_released"],
  ]);
  assert.deepEqual(heard.events.map(({ sequence }) => sequence), heard.events.map((_, place) => place));
  assert.ok(heard.events.every(({ key, atMs }) => key === KEY && atMs > 0 && atMs <= performance.now()));
  const acquired = heard.events.find(({ kind }) => kind === "lease_acquired");
  assert.deepEqual([acquired.limit, acquired.inFlight, typeof acquired.lease], [1, 1, "number"]);
  const refused = heard.events.find(({ kind }) => kind === "rate_limited");
  assert.ok(refused.blockedUntilMs > performance.now() && refused.consecutive === 1);
});

test("only the kinds that were asked for are told, each listener its own", async () => {
  const gate = gateOf(8);
  const falls = listen(gate, ["limit_decreased"]);
  const ends = listen(gate, ["call_completed", "lease_released"]);
  (await gate.acquire(KEY)).finish("rate_limited");
  await quiet();
  assert.deepEqual(falls.events.map(({ kind, from, to, key }) => ({ kind, from, to, key })), [
    { kind: "limit_decreased", from: 8, to: 6, key: KEY },
  ]);
  assert.deepEqual(ends.kinds(), ["call_completed", "lease_released"]);
  falls.stop();
  falls.stop();
  gate.register(KEY, { maxParallel: 4 });
  await quiet();
  assert.equal(falls.events.length, 1);
  assert.throws(() => gate.subscribe(() => {}, { kinds: ["rain"] }), /no event is called "rain"; there are resource_registered/);
});

test("a call that only the pace keeps is denied as paced, and the event says when the next may go out", async (t) => {
  const time = clock(t);
  // Tide lets calls out a millisecond apart until it knows how long they take.
  const gate = gateOf(2, { algorithm: "tide" });
  const heard = listen(gate, ["acquire_denied"]);
  const first = gate.tryAcquire(KEY);
  assert.equal(gate.tryAcquire(KEY), undefined);
  const { kind, opensInMs } = gate.why(KEY);
  assert.deepEqual([kind, opensInMs], ["paced", 1]);
  await time.advance(1);
  const second = gate.tryAcquire(KEY);
  assert.equal(gate.tryAcquire(KEY), undefined);
  await quiet();
  assert.deepEqual(heard.events.map(({ reason }) => reason), ["paced", "no_capacity"]);
  const [{ atMs, changesAtMs }] = heard.events;
  assert.ok(Math.abs(changesAtMs - atMs - 1) < 1e-6, `${atMs} ${changesAtMs}`);
  for (const permit of [first, second]) permit.finish("success");
});

test("registrations are told with the model they are about", async () => {
  const gate = new RequestGate();
  const heard = listen(gate, ["resource_registered", "effective_cap_changed"]);
  gate.register(KEY, { maxParallel: 4 });
  gate.register("provider/other", { maxParallel: 2 });
  gate.register(KEY, { maxParallel: 3 });
  await quiet();
  assert.deepEqual(heard.events.map(({ kind, key, cap, from, to }) => [kind, key, cap ?? `${from} -> ${to}`]), [
    ["resource_registered", KEY, 4],
    ["effective_cap_changed", KEY, "undefined -> 4"],
    ["resource_registered", "provider/other", 2],
    ["effective_cap_changed", "provider/other", "undefined -> 2"],
    ["resource_registered", KEY, 3],
    ["effective_cap_changed", KEY, "4 -> 3"],
  ]);
});

test("what only time does is told when it happens", async (t) => {
  const time = clock(t);
  const gate = gateOf(4, { rampMs: 300 });
  const heard = listen(gate, ["ramp_step", "wait_timeout"]);
  const calls = Array.from({ length: 4 }, () => gate.acquire(KEY));
  const late = assert.rejects(gate.acquire(KEY, { timeoutMs: 250 }));
  await time.advance(400);
  await late;
  const steps = heard.events.filter(({ kind }) => kind === "ramp_step");
  assert.deepEqual(steps.map(({ to }) => to), [2, 3, 4]);
  const [timeout] = heard.events.filter(({ kind }) => kind === "wait_timeout");
  assert.ok(timeout.waitedMs >= 250 && timeout.waitedMs < 253, `${timeout.waitedMs}`);
  for (const call of calls) (await call).finish("success");
});

test("a listener that throws is reported once, and the others hear everything", async (t) => {
  const shown = t.mock.method(console, "error", () => {});
  const gate = gateOf(1);
  gate.subscribe(() => {
    throw new Error("no");
  });
  const heard = listen(gate, ["call_completed"]);
  for (let call = 0; call < 3; call += 1) (await gate.acquire(KEY)).finish("success");
  await quiet();
  assert.equal(heard.events.length, 3);
  assert.equal(shown.mock.callCount(), 1);
});

test("a listener may call the gate, end subscriptions and free it", async () => {
  const gate = gateOf(1);
  const seen = [];
  const other = listen(gate);
  gate.subscribe((event) => {
    if (event.kind === "call_completed" && seen.length === 0) {
      seen.push(gate.snapshot(KEY).inFlight);
      gate.acquire(KEY).then((permit) => permit.finish("success"));
      other.stop();
      return;
    }
    if (event.kind === "call_completed") gate.free();
  });
  (await gate.acquire(KEY)).finish("success");
  await quiet();
  assert.deepEqual(seen, [0]);
  assert.throws(() => gate.snapshot(KEY), { name: "FreedError" });
});

test("there are as many kinds as the core has, and one of the package", () => {
  assert.equal(GATE_EVENT_KINDS.length, 29);
  assert.equal(new Set(GATE_EVENT_KINDS).size, 29);
});

test("a listener may free the gate while free tells it of the end", async () => {
  const gate = gateOf(1);
  let told = 0;
  const freeing = () => {
    told += 1;
    gate.free();
  };
  gate.subscribe(freeing, { kinds: ["call_completed"] });
  (await gate.acquire(KEY)).finish("success");
  gate.free();
  assert.ok(told > 0);
  assert.throws(() => gate.snapshot(KEY), { name: "FreedError" });
});
