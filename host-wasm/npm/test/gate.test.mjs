// Permits: when they are granted, denied and released.

import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";

import { DeniedError, FreedError, Permit, RequestGate, Resource } from "tidegate";

import { clock, quiet, state } from "./lib/clock.mjs";

const KEY = "provider/model";

// AIMD keeps its limit at the cap until a call is rate limited: these tests are about the gate.
const gateOf = (maxParallel, limits = {}, options = {}) => {
  const gate = new RequestGate(options);
  gate.register(KEY, { maxParallel, algorithm: "aimd", ...limits });
  return gate;
};

const denied = (reason) => (error) => error instanceof DeniedError && error.reason === reason;

test("a waiting call gets the slot that a finished call releases", async () => {
  const gate = gateOf(1);
  const first = await gate.acquire(KEY);
  const second = gate.acquire(KEY);
  assert.equal(await state(second), "pending");
  assert.equal(first.finish("success"), true);
  assert.equal(first.finish("success"), false, "a permit is finished once");
  assert.ok((await second) instanceof Permit);
  (await second).finish("success");
  assert.equal(gate.snapshot(KEY).inFlight, 0);
});

test("calls start in the order of requests, even within one turn", async () => {
  const gate = gateOf(1);
  const held = await gate.acquire(KEY);
  const order = [];
  const rest = [1, 2, 3].map((n) => gate.run(KEY, () => void order.push(n)));
  held.finish("success");
  assert.equal(gate.tryAcquire(KEY), undefined, "the slot went to the one who waited");
  await Promise.all(rest);
  assert.deepEqual(order, [1, 2, 3]);
});

test("the end of a using block releases a permit, and no permit is released twice", async () => {
  const gate = gateOf(1);
  const permit = await gate.acquire(KEY);
  permit[Symbol.dispose]();
  permit[Symbol.dispose]();
  assert.equal(permit.isFinished, true);
  assert.equal(gate.snapshot(KEY).lastOutcome, "local_cancelled");
  (await gate.acquire(KEY, { timeoutMs: 0 })).finish("success");
});

test("a call without a slot within its timeout is denied with queue_timeout", async (t) => {
  const time = clock(t);
  const gate = gateOf(1);
  const held = await gate.acquire(KEY);
  await assert.rejects(gate.acquire(KEY, { timeoutMs: 0 }), denied("queue_timeout"));
  const waiting = gate.acquire(KEY, { timeoutMs: 250 });
  const outcome = assert.rejects(waiting, denied("queue_timeout"));
  await time.advance(249);
  assert.equal(gate.snapshot(KEY).waiters, 1);
  await time.advance(2);
  await outcome;
  assert.equal(gate.snapshot(KEY).waiters, 0);
  held.finish("success");
});

test("the gate's default timeout applies to calls without one", async (t) => {
  const time = clock(t);
  const gate = gateOf(1, {}, { defaultTimeoutMs: 100 });
  const held = await gate.acquire(KEY);
  const outcome = assert.rejects(gate.acquire(KEY), denied("queue_timeout"));
  await time.advance(101);
  await outcome;
  held.finish("success");
});

test("a call whose signal is aborted leaves the queue with the signal's reason", async () => {
  const gate = gateOf(1);
  const reason = new Error("no longer needed");
  await assert.rejects(gate.acquire(KEY, { signal: AbortSignal.abort(reason) }), reason);
  assert.equal(gate.snapshot(KEY).sequence > 0 && gate.snapshot(KEY).inFlight, 0);

  const held = await gate.acquire(KEY);
  const controller = new AbortController();
  const left = assert.rejects(gate.acquire(KEY, { signal: controller.signal }), reason);
  const next = gate.acquire(KEY);
  assert.equal(gate.snapshot(KEY).waiters, 2);
  controller.abort(reason);
  await left;
  assert.equal(gate.snapshot(KEY).waiters, 1);
  held.finish("success");
  (await next).finish("success");
});

test("a signal aborted in the turn of the grant releases the slot", async () => {
  const gate = gateOf(1);
  const held = await gate.acquire(KEY);
  const controller = new AbortController();
  const waiting = gate.acquire(KEY, { signal: controller.signal });
  held.finish("success");
  controller.abort();
  await assert.rejects(waiting, { name: "AbortError" });
  assert.equal(gate.snapshot(KEY).inFlight, 0);
});

test("no listener is left on a signal, however its call ended", async (t) => {
  const time = clock(t);
  const gate = gateOf(1);
  const { signal } = new AbortController();
  let listeners = 0;
  const { addEventListener, removeEventListener } = signal;
  signal.addEventListener = (...given) => (listeners++, addEventListener.apply(signal, given));
  signal.removeEventListener = (...given) => (listeners--, removeEventListener.apply(signal, given));
  const held = await gate.acquire(KEY, { signal });
  const granted = gate.run(KEY, () => {}, { signal, callTimeoutMs: 1_000 });
  const late = assert.rejects(gate.acquire(KEY, { signal, timeoutMs: 5 }), denied("queue_timeout"));
  await quiet();
  assert.equal(listeners, 1, "they share one");
  await time.advance(6);
  await late;
  held.finish("success");
  await granted;
  assert.equal(listeners, 0);
});

test("tryAcquire returns a permit or undefined, and why returns the reason", () => {
  const gate = gateOf(2, { initialLimit: 1 });
  assert.equal(gate.why(KEY), undefined);
  const permit = gate.tryAcquire(KEY);
  assert.equal(gate.tryAcquire(KEY), undefined);
  assert.deepEqual(gate.why(KEY), {
    kind: "limit",
    limit: 1,
    text: "provider/model: the adaptive limit of 1 is reached",
  });
  permit.finish("success");
  assert.equal(gate.why(KEY), undefined);
  gate.shutdown();
  assert.equal(gate.why(KEY).kind, "shutdown");
  assert.throws(() => gate.tryAcquire(KEY), denied("shutdown"));
});

test("after a rate limit no call starts before the Retry-After has passed", async (t) => {
  const time = clock(t);
  const gate = gateOf(4);
  const refused = await gate.acquire(KEY);
  refused.finish({ outcome: "rate_limited", retryAfterMs: 30_000 });
  assert.equal(gate.tryAcquire(KEY), undefined);
  assert.equal(gate.why(KEY).kind, "cooldown");
  assert.equal(gate.why(KEY).text, "provider/model: a cooldown is in force for another 30.0 s");
  const next = gate.acquire(KEY);
  await time.advance(29_999);
  assert.equal(await state(next), "pending");
  await time.advance(1);
  (await next).finish("success");
  assert.equal(gate.snapshot(KEY).consecutiveRateLimits, 0);
});

test("by default a call is sent as a trial before the Retry-After ends; with other algorithms or `retryAfter` all calls wait", async (t) => {
  const time = clock(t);
  const waiting = [{ name: "tide", retryAfter: "resource" }, "aimd", "vegas", "fixed"];
  for (const algorithm of [undefined, "tide", ...waiting]) {
    const gate = new RequestGate();
    gate.register(KEY, { maxParallel: 4, algorithm });
    (await gate.acquire(KEY)).finish({ outcome: "rate_limited", retryAfterMs: 2_000 });
    const next = gate.acquire(KEY);
    await time.advance(1_999);
    assert.equal((await state(next)) === "pending", waiting.includes(algorithm), inspect(algorithm));
    await time.advance(1);
    (await next).finish("success");
  }
});

test("a rate limit decreases the limit, and successes increase it again", async () => {
  const gate = gateOf(8, { cooldownMs: 0.001, successesUntilIncrease: 2 });
  (await gate.acquire(KEY)).finish("rate_limited");
  assert.equal(gate.snapshot(KEY).currentLimit, 6);
  for (let call = 0; call < 2; call += 1) (await gate.acquire(KEY)).finish("success");
  assert.equal(gate.snapshot(KEY).currentLimit, 7);
  assert.equal(gate.snapshot(KEY).rateLimitCeiling, 8);
});

test("the default algorithm is tide, and a setting of AIMD selects AIMD", () => {
  const limitOf = (limits, options) => {
    const gate = new RequestGate(options);
    gate.register(KEY, { maxParallel: 40, ...limits });
    return gate.snapshot(KEY).currentLimit;
  };
  const [tide, aimd] = [10, 40];
  assert.equal(limitOf({}), tide);
  assert.equal(limitOf({ cooldownMs: 250, maxCooldownMs: 1_000, maxLimit: 40 }), tide, "these hold for every algorithm");
  assert.equal(limitOf({ algorithm: "aimd" }), aimd);
  assert.equal(limitOf({ successesUntilIncrease: 3 }), aimd);
  assert.equal(limitOf({}, { decreaseFactor: 0.5 }), aimd, "of the whole gate");
  assert.equal(limitOf({ algorithm: "tide" }, { decreaseFactor: 0.5 }), tide, "what a resource says holds for it");
  assert.throws(() => limitOf({ algorithm: "tide", decreaseFactor: 0.5 }), {
    name: "TypeError",
    message: 'decreaseFactor is a setting of the algorithm "aimd", and algorithm is "tide"; settings of other algorithms belong in `algorithm`',
  });
  assert.throws(() => limitOf({ algorithm: { name: "tide" }, initialLimit: 3 }), TypeError);
});

test("a ramp bounds the limit of every algorithm until it ends", async (t) => {
  const time = clock(t);
  const gate = new RequestGate();
  gate.register(KEY, { maxParallel: 9, rampMs: 8_000 });
  (await gate.acquire(KEY)).finish("success");
  assert.deepEqual([gate.snapshot(KEY).currentLimit, gate.snapshot(KEY).ramp.target], [1, 9]);
  await time.advance(4_000);
  assert.equal(gate.snapshot(KEY).currentLimit, 5);
  await time.advance(4_000);
  assert.deepEqual([gate.snapshot(KEY).currentLimit, gate.snapshot(KEY).ramp], [9, undefined]);
});

test("every algorithm uses its own settings", () => {
  const limitOf = (algorithm) => gateOf(40, { algorithm }).snapshot(KEY).currentLimit;
  assert.equal(limitOf("aimd"), 40);
  assert.equal(limitOf("tide"), 10);
  assert.equal(limitOf({ name: "tide", initialLimit: 3 }), 3);
  assert.equal(limitOf({ name: "vegas", initialLimit: 5, alpha: 2, beta: 4 }), 5);
  assert.equal(limitOf({ name: "fixed", limit: 7 }), 7);
  assert.equal(limitOf({ name: "fixed" }), 40);
  assert.equal(limitOf("fixed"), 40);
});

test("a budget grants no more than it holds, and actual use replaces the estimate", async (t) => {
  const time = clock(t);
  const gate = gateOf(8, { budgets: [{ dimension: "total_tokens", limit: 6_000 }] });
  const estimate = { inputTokens: 3_000, outputTokens: 3_000 };
  const first = await gate.acquire(KEY, { estimate });
  const second = gate.acquire(KEY, { estimate });
  assert.equal(await state(second), "pending");
  const why = gate.why(KEY);
  assert.deepEqual([why.kind, Math.round(why.fitsInMs)], ["budget", 60_000]);
  first.finish({ outcome: "success", used: { inputTokens: 3_000, outputTokens: 2_000 } });
  assert.deepEqual(gate.snapshot(KEY).budgets, [
    { dimension: "total_tokens", windowMs: 60_000, limit: 6_000, available: 1_000, reserved: 0, source: "settings" },
  ]);
  await time.advance(49_990);
  assert.equal(await state(second), "pending");
  await time.advance(20);
  (await second).finish("success");
});

test("tenants share by weight, and unregistered ones equally", async () => {
  const gate = gateOf(1);
  gate.tenant("people", 3);
  const held = await gate.acquire(KEY);
  const served = [];
  const ask = (tenant) => gate.run(KEY, () => void served.push(tenant), { tenant });
  const all = Array.from({ length: 12 }, () => ["batch", "people"].map(ask)).flat();
  held.finish("success");
  await Promise.all(all);
  const people = served.slice(0, 12).filter((tenant) => tenant === "people").length;
  assert.ok(people >= 8 && people <= 10, `${people} of the first 12`);
});

test("tenants beyond the four thousandth share one group", async () => {
  const gate = gateOf(1);
  for (let nth = 0; nth < 4_096; nth++) gate.tryAcquire(KEY, { tenant: `${nth}` }).finish("success");
  const held = await gate.acquire(KEY);
  const served = [];
  const ask = (tenant) => gate.run(KEY, () => void served.push(tenant), { tenant });
  const all = Array.from({ length: 4 }, () => ["late", "later", "0"].map(ask)).flat();
  held.finish("success");
  await Promise.all(all);
  assert.equal(served.slice(0, 8).filter((tenant) => tenant === "0").length, 4, `${served}`);
});

test("a key is a text, an object or a resource, and domains have limits of their own", () => {
  const gate = new RequestGate();
  const chat = gate.register("openrouter/meta/llama-4", { maxParallel: 3 });
  const embedding = gate.register({ provider: "openrouter", model: "meta/llama-4", domain: "embedding" }, { maxParallel: 3 });
  assert.ok(chat instanceof Resource);
  assert.deepEqual([chat.provider, chat.model, chat.domain, `${chat}`], ["openrouter", "meta/llama-4", "chat", "openrouter/meta/llama-4"]);
  assert.equal(`${embedding}`, "openrouter/meta/llama-4 (embedding)");
  const permit = gate.tryAcquire({ provider: "openrouter", model: "meta/llama-4" });
  assert.equal(permit.resource, chat);
  assert.equal(gate.snapshot(chat).inFlight, 1);
  assert.deepEqual([gate.snapshot(embedding).inFlight, gate.snapshot(embedding).providerInFlight], [0, 1]);
  assert.deepEqual(gate.resources(), [chat, embedding]);
  permit.finish("success");
});

test("an unregistered key is denied by name, even if another gate has it", async () => {
  const gate = gateOf(1);
  const stranger = new RequestGate();
  await assert.rejects(gate.acquire("provider/other"), { reason: "unregistered", key: "provider/other" });
  assert.throws(() => stranger.snapshot(gate.resources()[0]), denied("unregistered"));
  assert.throws(() => gate.why("nothing"), denied("unregistered"));
  assert.throws(() => gate.register({ provider: "a/b", model: "m" }, { maxParallel: 1 }), /must not contain "\/"/);
  assert.throws(() => gate.register({ provider: "a", model: "" }, { maxParallel: 1 }), TypeError);
});

test("settings are checked by name, type and range, and a rejected registration changes nothing", () => {
  const gate = gateOf(4);
  const refused = (limits, expected) =>
    assert.throws(() => gate.register(KEY, { maxParallel: 2, ...limits }), expected, inspect(limits));
  refused({ maxParallel: 0 }, { name: "RangeError", message: "maxParallel is 0; expected at least 1" });
  refused({ maxParallel: 1.5 }, { name: "TypeError", message: "maxParallel: invalid type: floating point `1.5`, expected a whole number from 0 to 4294967295" });
  refused({ maxParallel: -1 }, { name: "RangeError", message: "maxParallel: invalid value: integer `-1`, expected a whole number from 0 to 4294967295" });
  refused({ maxParallel: undefined }, { name: "TypeError", message: "missing field `maxParallel`" });
  refused({ maxparallel: 3 }, { name: "TypeError", message: /^maxparallel: unknown field `maxparallel`, expected one of .*`maxParallel`/ });
  refused({ decreaseFactor: 7 }, { name: "RangeError", message: "decreaseFactor is 7; expected a number from 0.01 to 0.99" });
  refused({ maxCooldownMs: 10 }, { message: "maxCooldownMs is 10; expected at least `cooldownMs`" });
  refused({ cooldownMs: -1 }, { name: "RangeError", message: /^cooldownMs: .*expected a number of milliseconds from 0/ });
  refused({ cooldownMs: Infinity }, { name: "TypeError", message: /^cooldownMs: / });
  refused({ rampMs: "long" }, { name: "TypeError", message: /^rampMs: / });
  refused({ rampMs: () => 5 }, { name: "TypeError", message: /^rampMs: invalid type: string "a function", expected a number/ });
  refused({ rampMs: Symbol("ramp") }, { name: "TypeError", message: /^rampMs: invalid type: string "a symbol"/ });
  refused({ maxParallel: 4n }, { name: "TypeError", message: /^maxParallel: invalid type: string "a BigInt", expected a whole number from 0 to 4294967295/ });
  refused({ "": () => 5 }, { name: "TypeError", message: /unknown field ``/ });
  refused({ growOnEvidence: 1 }, { name: "TypeError", message: /^growOnEvidence: / });
  refused({ weight: 0 }, { message: "weight is 0; expected a number from 2^-20 to 2^20" });
  refused({ algorithm: "best" }, { name: "TypeError", message: 'algorithm: no algorithm is called "best"; there are aimd, vegas, tide, fixed' });
  refused({ algorithm: { name: "fixed", limit: 0 } }, { message: "algorithm.limit is 0; expected at least 1" });
  refused({ algorithm: { name: "tide", probeAfterMost: 2 } }, { message: "algorithm.probeAfterMost is 2; expected at least `algorithm.probeAfter`" });
  refused({ algorithm: { name: "tide", probeAfter: "16" } }, { name: "TypeError", message: /^algorithm\.probeAfter: invalid type: string "16"/ });
  refused({ algorithm: { name: "tide", probeAfter: -1 } }, { name: "RangeError", message: /^algorithm\.probeAfter: invalid value/ });
  refused({ algorithm: { name: "aimd", limit: 1 } }, { name: "TypeError", message: /^algorithm\.limit: unknown field `limit`/ });
  refused({ budgets: [{ dimension: "words", limit: 3 }] }, /^TypeError: budgets\[0\].dimension: unknown variant `words`, expected one of `requests`/);
  const good = { dimension: "requests", limit: 5 };
  refused({ budgets: [good, { ...good, limit: 0 }] }, { name: "RangeError", message: "budgets[1].limit is 0; expected a number from 1 to 10^15" });
  refused({ budgets: [{ ...good, windowMs: 0 }] }, { message: "budgets[0].windowMs is 0; expected longer than zero" });
  refused({ budgets: [good, ["requests", 5]] }, { name: "TypeError", message: "budgets[1]: invalid type: sequence, expected an object" });
  refused({ algorithm: ["tide"] }, { name: "TypeError", message: /^algorithm: no algorithm is called \["tide"\]/ });
  for (const make of [() => gate.register(KEY, [5]), () => new RequestGate([])]) {
    assert.throws(make, { name: "TypeError", message: "invalid type: sequence, expected an object" });
  }
  assert.equal(gate.snapshot(KEY).providerCap, 4);
  assert.throws(() => new RequestGate({ cooldownMs: 0 }), { message: "cooldownMs is 0; expected longer than zero" });
  assert.throws(() => new RequestGate({ coolDownMs: 1 }), { name: "TypeError", message: /^coolDownMs: unknown field .*`cooldownMs`/ });
  assert.throws(() => new RequestGate({ weight: 2 }), { name: "TypeError", message: /^weight: unknown field/ });
  assert.throws(() => new RequestGate({ maxCooldownMs: 60_000 }).register(KEY, { maxParallel: 1, cooldownMs: 90_000 }), {
    name: "RangeError",
    message: "maxCooldownMs is 60.000s; expected at least `cooldownMs`",
  });
  assert.throws(() => new RequestGate({ defaultTimeoutMs: -1 }), RangeError);
  assert.throws(() => gate.tenant("x", -1), { message: "weight is -1; expected a number from 2^-20 to 2^20" });
});

test("invalid options are rejected before a permit is requested", async () => {
  const gate = gateOf(1);
  for (const options of [{ timeoutMs: -1 }, { timeoutMs: NaN }, { timeoutMs: "1" }, { estimate: { inputTokens: 0.5 } }]) {
    await assert.rejects(gate.acquire(KEY, options), Error, JSON.stringify(options));
  }
  assert.equal(gate.snapshot(KEY).inFlight, 0);
  const permit = await gate.acquire(KEY);
  assert.throws(() => permit.finish("429"), /rate_limited/);
  assert.throws(() => permit.finish({ outcome: "success", retryAfterMs: -1 }), RangeError);
  assert.equal(permit.finish("success"), true, "still open");
});

test("registering again changes the cap, also for waiting calls", async () => {
  const gate = gateOf(1);
  const held = await gate.acquire(KEY);
  const waiting = gate.acquire(KEY);
  gate.register(KEY, { maxParallel: 2 });
  (await waiting).finish("success");
  held.finish("success");
});

test("shutdown rejects waiting and later calls, and permits in use stay valid", async () => {
  const gate = gateOf(1);
  const held = await gate.acquire(KEY);
  const waiting = assert.rejects(gate.acquire(KEY), denied("shutdown"));
  gate.shutdown();
  await waiting;
  await assert.rejects(gate.acquire(KEY), denied("shutdown"));
  assert.equal(held.finish("success"), true);
});

test("a freed gate rejects waiting calls, and its methods throw FreedError", async () => {
  const gate = gateOf(1);
  const held = await gate.acquire(KEY);
  const waiting = assert.rejects(gate.acquire(KEY), denied("shutdown"));
  gate.free();
  gate.free();
  gate[Symbol.dispose]();
  await waiting;
  for (const use of [
    () => gate.register(KEY, { maxParallel: 1 }),
    () => gate.tryAcquire(KEY),
    () => gate.snapshot(KEY),
    () => gate.why(KEY),
    () => gate.subscribe(() => {}),
    () => gate.shutdown(),
    () => gate.tenant("x", 1),
  ]) {
    assert.throws(use, (error) => error instanceof FreedError && /was freed/.test(error.message));
  }
  for (const use of [gate.acquire(KEY), gate.run(KEY, () => 1), gate.fetch(KEY, "data:,")]) {
    await assert.rejects(use, FreedError);
  }
  assert.equal(held.finish("success"), true, "its permits outlive it");
});

test("gates are independent of each other", async () => {
  const [one, other] = [gateOf(1), gateOf(1)];
  const held = await one.acquire(KEY);
  const waiting = one.acquire(KEY);
  (await other.acquire(KEY)).finish("success");
  other.free();
  held.finish("success");
  (await waiting).finish("success");
  await quiet();
  assert.equal(one.snapshot(KEY).activeLeases, 0);
});

test("an invalid signal is rejected, and other calls start", async () => {
  const gate = gateOf(4);
  const wrong = [new AbortController(), {}, "soon", { aborted: false }, { aborted: 1, addEventListener() {} }];
  const before = gate.acquire(KEY);
  const refused = wrong.map((signal) => assert.rejects(gate.acquire(KEY, { signal }), /signal must be an AbortSignal/));
  const after = gate.acquire(KEY, { signal: null });
  await Promise.all(refused);
  for (const permit of await Promise.all([before, after])) permit.finish("success");
  assert.equal(await gate.run(KEY, () => 3, { signal: null, callTimeoutMs: 100 }), 3);
  assert.equal(gate.snapshot(KEY).inFlight, 0);
});

test("a call whose notification throws releases its permit, and the others are notified", async () => {
  const gate = gateOf(4);
  const { signal } = new AbortController();
  signal.addEventListener = () => {
    throw new Error("nobody may listen");
  };
  const calls = [gate.run(KEY, () => 1), gate.run(KEY, () => 2, { signal, callTimeoutMs: 100 }), gate.run(KEY, () => 3)];
  const ends = await Promise.allSettled(calls);
  assert.deepEqual(ends.map(({ value, reason }) => value ?? reason.message), [1, "nobody may listen", 3]);
  assert.equal(gate.snapshot(KEY).inFlight, 0);
});

test("an unknown option is rejected by its name", async () => {
  const gate = gateOf(1);
  await assert.rejects(gate.acquire(KEY, { timeout: 100 }), /no setting `timeout`.*timeoutMs/);
  await assert.rejects(gate.acquire(KEY, { callTimeoutMs: 100 }), TypeError);
  await assert.rejects(gate.run(KEY, () => 1, { tries: 3 }), /no setting `tries`.*callTimeoutMs/);
  assert.throws(() => gate.tryAcquire(KEY, { timeoutMs: 1 }), /no setting `timeoutMs`/);
  assert.equal(gate.snapshot(KEY).inFlight, 0);
});
