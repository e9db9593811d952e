// Events of a gate.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { GATE_EVENT_KINDS, RequestGate } from "tidegate";

import { readEvent } from "../dist/events.js";

import { clock, quiet } from "./lib/clock.mjs";

const KEY = "provider/model";

// AIMD keeps its limit at the cap until a call is rate limited: these tests are about the gate.
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

test("a waiting call emits one event for each of its steps", async (t) => {
  const time = clock(t);
  const gate = gateOf(1);
  const heard = listen(gate);
  const held = await gate.acquire(KEY);
  const waiting = gate.acquire(KEY);
  await quiet();
  held.finish("success");
  const permit = await waiting;
  await time.advance(20);
  permit.finish({ outcome: "rate_limited", retryAfterMs: 60_000 });
  await quiet();
  assert.deepEqual(heard.kinds(), [
    ...["wait_started", "wait_completed", "lease_acquired", "call_started"],
    ...["queue_formed", "wait_started"],
    ...["call_completed", "lease_released", "wait_completed", "lease_acquired", "call_started", "queue_drained"],
    ...["call_completed", "rate_limited", "lease_released"],
  ]);
  assert.deepEqual(heard.events.map(({ sequence }) => sequence), heard.events.map((_, place) => place));
  assert.ok(heard.events.every(({ key, atMs }) => key === KEY && atMs > 0 && atMs <= time.now));
  const acquired = heard.events.find(({ kind }) => kind === "lease_acquired");
  assert.deepEqual([acquired.limit, acquired.inFlight, typeof acquired.lease], [1, 1, "number"]);
  const refused = heard.events.find(({ kind }) => kind === "rate_limited");
  assert.deepEqual([refused.atMs, refused.blockedUntilMs, refused.consecutive], [time.now, time.now + 60_000, 1]);
});

test("each listener receives only the kinds that it subscribed to", async () => {
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

test("a call denied only by pacing has the reason paced, and the event has the time of the next start", async (t) => {
  const time = clock(t);
  // Tide starts calls a millisecond apart until it has measured their latency.
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

test("registration events have the key of their model", async () => {
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

test("changes that only time causes emit their events in time", async (t) => {
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

test("the first error of a listener is logged, and other listeners receive every event", async (t) => {
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

test("an event of each kind is read from its numbers as the core has it", () => {
  const times = ["waited", "took", "held", "requested", "applied", "window", "changes_at", "blocked_until", "since", "probe_at", "full_at"];
  const camelCase = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
  const fact = ([name, value]) => {
    if (name === "rate") return Object.entries(value).flatMap(fact);
    if (times.includes(name)) return [[`${camelCase(name)}Ms`, value === null ? undefined : value / 1e6]];
    if (name !== "lease" && name !== "waiter") return [[camelCase(name), value ?? undefined]];
    const { slot, generation } = value?.key ?? value ?? {};
    return [[name, value === null ? undefined : generation * 2 ** 32 + slot]];
  };
  const kinds = [];
  // `gate/events.rs` checks that these are the numbers that the module writes.
  const lines = readFileSync(new URL("../../tests/data/gate_events.jsonl", import.meta.url), "utf8").trim().split("\n");
  for (const { event, numbers } of lines.map((line) => JSON.parse(line))) {
    const { kind, sequence, at, place, ...facts } = event;
    const read = readEvent(Float64Array.from(numbers, (number) => number ?? NaN));
    assert.deepEqual(read, { kind, sequence, atMs: at / 1e6, key: undefined, ...Object.fromEntries(Object.entries(facts).flatMap(fact)) });
    kinds.push(kind);
  }
  assert.deepEqual(GATE_EVENT_KINDS, [...kinds, "body_left_unread"]);
});

test("a listener may call free during the events of free", async () => {
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
