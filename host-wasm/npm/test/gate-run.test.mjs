// Calls under a permit: how they end, and that none of them can block the gate.

import assert from "node:assert/strict";
import { test } from "node:test";

import { readHead, RequestGate } from "tidegate";

import { clock, quiet } from "./lib/clock.mjs";

const KEY = "provider/model";

// AIMD keeps its limit at the cap until a call is rate limited: these tests are about the gate.
const gateOf = (maxParallel = 4, limits = {}) => {
  const gate = new RequestGate({ cooldownMs: 0.001 });
  gate.register(KEY, { maxParallel, algorithm: "aimd", ...limits });
  return gate;
};

/** How the gate saw the end of a call, and that its slot came back. */
async function outcomeOf(fn, options) {
  const gate = gateOf();
  await gate.run(KEY, fn, options).catch(() => {});
  const { inFlight, activeLeases, lastOutcome } = gate.snapshot(KEY);
  assert.deepEqual([inFlight, activeLeases], [0, 0]);
  return lastOutcome;
}

const fail = (error) => () => Promise.reject(error);
const named = (name) => Object.assign(new Error(name), { name });

test("run returns what its function returns and throws what it throws, also synchronously", async () => {
  const gate = gateOf(1);
  assert.equal(await gate.run(KEY, () => 3), 3);
  assert.equal(await gate.run(KEY, async () => "later"), "later");
  const error = new Error("mine");
  await assert.rejects(gate.run(KEY, fail(error)), error);
  await assert.rejects(gate.run(KEY, () => { throw error; }), error);
  await assert.rejects(gate.run(KEY, () => ({ get then() { throw error; } })), error);
  await assert.rejects(gate.run(KEY, "no function"), TypeError);
  assert.equal(gate.snapshot(KEY).inFlight, 0, "and the gate is as open as before");
  assert.equal(await gate.run(KEY, () => 4), 4);
});

test("the name of an error determines the outcome of its call", async () => {
  assert.equal(await outcomeOf(() => 1), "success");
  assert.equal(await outcomeOf(fail(named("AbortError"))), "local_cancelled");
  assert.equal(await outcomeOf(fail(named("TimeoutError"))), "local_timeout");
  assert.equal(await outcomeOf(fail(new Error("bug"))), "unexpected");
  for (const odd of [undefined, null, 7, "text"]) assert.equal(await outcomeOf(fail(odd)), "unexpected");
});

test("a connection error is recognized by message or code, also as the cause of another error", async () => {
  const withCode = (code) => Object.assign(new Error("socket"), { code });
  for (const code of ["ECONNREFUSED", "ECONNRESET", "EPIPE", "ENOTFOUND", "UND_ERR_SOCKET", "ConnectionRefused"]) {
    assert.equal(await outcomeOf(fail(withCode(code))), "connection_failed", code);
    const wrapped = new Error("it did not work", { cause: new TypeError("fetch failed", { cause: withCode(code) }) });
    assert.equal(await outcomeOf(fail(wrapped)), "connection_failed", code);
  }
  for (const words of ["Failed to fetch", "NetworkError when attempting to fetch resource.", "Load failed"]) {
    assert.equal(await outcomeOf(fail(new TypeError(words))), "connection_failed", words);
    assert.equal(await outcomeOf(fail(new Error(words))), "unexpected", "a program says that, and no platform");
  }
  const ofTls = ["CERT_HAS_EXPIRED", "DEPTH_ZERO_SELF_SIGNED_CERT", "ERR_TLS_CERT_ALTNAME_INVALID", "ERR_SSL_WRONG_VERSION_NUMBER", "ERR_SSL_PACKET_LENGTH_TOO_LONG", "ERR_SSL_UNSUPPORTED_PROTOCOL", "ERR_SSL_SSL/TLS_ALERT_HANDSHAKE_FAILURE", "ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED"];
  for (const code of ofTls) {
    assert.equal(await outcomeOf(fail(new TypeError("fetch failed", { cause: withCode(code) }))), "tls_failed", code);
  }
  assert.equal(await outcomeOf(fail(withCode("ERR_SSL_TLSV1_ALERT_INTERNAL_ERROR"))), "unexpected", "the server may be overloaded");
  assert.equal(await outcomeOf(fail(withCode("UND_ERR_HEADERS_TIMEOUT"))), "provider_timeout");
  assert.equal(await outcomeOf(fail(new TypeError("terminated", { cause: withCode("UND_ERR_SOCKET") }))), "provider_failure");
  assert.equal(await outcomeOf(fail(withCode("ENOENT"))), "unexpected");
  assert.equal(await outcomeOf(fail(new TypeError("undefined is no function"))), "unexpected");
  const loop = new Error("loop");
  loop.cause = loop;
  assert.equal(await outcomeOf(fail(loop)), "unexpected");
});

test("classify overrides the outcome, and a classify that throws is ignored", async (t) => {
  const shown = t.mock.method(console, "error", () => {});
  const classify = (result) => ("error" in result ? "provider_failure" : result.value === 0 ? "provider_timeout" : undefined);
  assert.equal(await outcomeOf(() => 0, { classify }), "provider_timeout");
  assert.equal(await outcomeOf(() => 1, { classify }), "success");
  assert.equal(await outcomeOf(fail(new Error("x")), { classify }), "provider_failure");
  assert.equal(shown.mock.callCount(), 0);
  assert.equal(await outcomeOf(() => 1, { classify: () => { throw new Error("oops"); } }), "success");
  assert.equal(await outcomeOf(() => 1, { classify: () => "great" }), "success");
  assert.equal(shown.mock.callCount(), 2);
});

test("a returned response is read by status, Retry-After and rate limits", async (t) => {
  clock(t);
  const answer = (status, headers) => () => new Response(null, { status, headers });
  assert.equal(await outcomeOf(answer(200)), "success");
  assert.equal(await outcomeOf(answer(429)), "rate_limited");
  assert.equal(await outcomeOf(answer(503)), "provider_failure");
  assert.equal(await outcomeOf(answer(503, { "retry-after": "0" })), "rate_limited");
  assert.equal(await outcomeOf(answer(504)), "provider_timeout");
  assert.equal(await outcomeOf(answer(404)), "request_rejected");
  assert.equal(await outcomeOf(answer(401)), "key_rejected");
  assert.equal(await outcomeOf(answer(402)), "quota_exhausted");

  const gate = gateOf();
  await gate.run(KEY, answer(429, { "retry-after": "7" }));
  assert.equal(gate.why(KEY).endsInMs, 7_000);
});

test("an observed head determines the outcome, even if the function then throws", async () => {
  const observe = (status, then) => (call) => {
    call.observe({ status, headers: new Headers({ "retry-after-ms": "20" }) });
    return then();
  };
  assert.equal(await outcomeOf(observe(429, fail(new Error("too many")))), "rate_limited");
  assert.equal(await outcomeOf(observe(529, () => 1)), "rate_limited");
  assert.equal(await outcomeOf(observe(200, () => 1)), "success");
  assert.equal(await outcomeOf(observe(200, fail(named("AbortError")))), "local_cancelled", "the body was given up");
});

test("the remaining amount that the provider states corrects the budget", async () => {
  const gate = gateOf(4, { budgets: [{ dimension: "requests", limit: 60 }] });
  await gate.run(KEY, (call) =>
    call.observe({ status: 200, headers: new Headers({ "x-ratelimit-remaining-requests": "3", "x-ratelimit-limit-requests": "60" }) }),
  );
  const [{ available }] = gate.snapshot(KEY).budgets;
  assert.ok(available <= 4, `${available}`);
  await assert.rejects(gate.run(KEY, (call) => call.used({ inputTokens: -1 })), RangeError);
});

test("the call's signal follows the caller's", async () => {
  const gate = gateOf();
  const controller = new AbortController();
  const reason = named("AbortError");
  const running = gate.run(KEY, (call) => new Promise((_, reject) => {
    call.signal.addEventListener("abort", () => reject(call.signal.reason));
  }), { signal: controller.signal, callTimeoutMs: 60_000 });
  await quiet();
  assert.equal(gate.snapshot(KEY).inFlight, 1);
  controller.abort(reason);
  await assert.rejects(running, reason);
  assert.equal(gate.snapshot(KEY).lastOutcome, "local_cancelled");
  const { signal } = await gate.run(KEY, (call) => ({ signal: call.signal }));
  assert.equal(signal.aborted, false, "and is there without one");
});

test("a call that exceeds its timeout has its signal aborted, and holds its slot until it has ended", async (t) => {
  const time = clock(t);
  const gate = gateOf(1);
  let give;
  const seen = [];
  const running = gate.run(KEY, (call) => {
    call.signal.addEventListener("abort", () => seen.push(call.signal.reason.name));
    return new Promise((_, reject) => (give = () => reject(call.signal.reason)));
  }, { callTimeoutMs: 100 });
  const outcome = assert.rejects(running, { name: "TimeoutError" });
  await time.advance(99);
  assert.deepEqual(seen, []);
  await time.advance(2);
  assert.deepEqual(seen, ["TimeoutError"]);
  assert.equal(gate.snapshot(KEY).inFlight, 1);
  give();
  await outcome;
  assert.deepEqual([gate.snapshot(KEY).inFlight, gate.snapshot(KEY).lastOutcome], [0, "provider_timeout"]);
  assert.equal(time.armed, 0);
});

test("a function may call the gate in any way, at any moment", async () => {
  const gate = gateOf(2);
  const inner = [];
  const answer = await gate.run(KEY, async () => {
    inner.push(await gate.run(KEY, () => gate.snapshot(KEY).inFlight));
    gate.register(KEY, { maxParallel: 3 });
    assert.equal(gate.tryAcquire(KEY).finish("success"), true);
    const controller = new AbortController();
    const held = [await gate.acquire(KEY), await gate.acquire(KEY)];
    const left = gate.acquire(KEY, { signal: controller.signal }).catch((error) => {
      inner.push(error.name);
      // From an abort handler: waiting calls continue.
      held[0].finish("success");
    });
    controller.signal.addEventListener("abort", () => inner.push(gate.why(KEY).kind));
    controller.abort();
    await left;
    held[1].finish("success");
    return "done";
  });
  assert.deepEqual([answer, ...inner], ["done", 2, "provider_cap", "AbortError"]);
  assert.equal(gate.snapshot(KEY).inFlight, 0);
});

test("a gate freed from within a call rejects waiting calls and lets the call end", async () => {
  const gate = gateOf(1);
  const running = gate.run(KEY, async (call) => {
    gate.free();
    await quiet();
    call.observe({ status: 200, headers: new Headers() });
    return "ended";
  });
  const waiting = assert.rejects(gate.run(KEY, () => assert.fail("it must not run")), { reason: "shutdown" });
  assert.equal(await running, "ended");
  await waiting;
});

test("readHead reads seconds, dates, milliseconds and rates", () => {
  const read = (status, headers) => readHead({ status, headers: new Headers(headers) });
  assert.deepEqual(read(200, {}), { outcome: "success", rateLimits: [] });
  assert.deepEqual(read(429, { "retry-after": "1.5" }), { outcome: "rate_limited", retryAfterMs: 1_500, rateLimits: [] });
  assert.equal(read(429, { "retry-after": "1", "retry-after-ms": "120" }).retryAfterMs, 120);
  const now = Date.now();
  const inAnHour = new Date(now + 3_600_000).toUTCString();
  const { retryAfterMs } = read(503, { "retry-after": inAnHour });
  // A date has no milliseconds.
  assert.ok(retryAfterMs >= Date.parse(inAnHour) - Date.now() && retryAfterMs <= Date.parse(inAnHour) - now, `${retryAfterMs}`);
  assert.equal(read(429, { "retry-after": "Sun, 06 Nov 1994 08:49:37 GMT" }).retryAfterMs, 0);
  for (const odd of ["later", "-3", "soon 5", "2026-11-21", "NaN"]) {
    assert.equal(read(429, { "retry-after": odd }).retryAfterMs, undefined, odd);
  }
  const said = read(429, {
    "x-ratelimit-limit-tokens": "90000",
    "x-ratelimit-remaining-tokens": "0",
    "x-ratelimit-reset-tokens": "1m30s",
    "x-ratelimit-remaining": "12",
  });
  assert.equal(said.retryAfterMs, 90_000);
  assert.deepEqual(said.rateLimits, [
    { dimension: "requests", limit: undefined, remaining: 12, resetAfterMs: undefined, windowMs: undefined },
    { dimension: "total_tokens", limit: 90_000, remaining: 0, resetAfterMs: 90_000, windowMs: undefined },
  ]);
});

test("calls are paced to a rate that the first response states, unless rateLimitHeaders is off", async () => {
  const stated = { "x-ratelimit-limit-requests": "300", "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "60s" };
  const answer = () => new Response(null, { headers: stated });
  const gate = gateOf(4);
  const learned = [];
  gate.subscribe((event) => learned.push(event), { kinds: ["rate_learned"] });
  await gate.run(KEY, answer);
  const { kind, limit, windowMs, fitsInMs, text } = gate.why(KEY);
  assert.deepEqual([kind, limit, windowMs, fitsInMs <= 200], ["stated_rate", 300, 60_000, true]);
  assert.match(text, /the provider's own limit of 300 requests a minute is reached: next in/);
  assert.equal(gate.snapshot(KEY).budgets[0].source, "headers");
  await gate.run(KEY, answer);
  await quiet();
  assert.deepEqual(learned.map(({ dimension, limit }) => [dimension, limit]), [["requests", 300]]);
  const off = new RequestGate({ rateLimitHeaders: false });
  off.register(KEY, { maxParallel: 4 });
  await off.run(KEY, answer);
  assert.deepEqual(off.snapshot(KEY).budgets, []);
  assert.throws(() => new RequestGate({ rateLimitHeaders: 1 }), TypeError);
});

test("a response that is observed and returned is applied once", async () => {
  const gate = gateOf(4, { budgets: [{ dimension: "requests", limit: 60 }] });
  const said = (left) => new Response(null, { headers: { "x-ratelimit-remaining-requests": left } });
  let goOn;
  const first = gate.run(KEY, async (call) => {
    const answer = said("30");
    call.observe(answer);
    await new Promise((resolve) => (goOn = resolve));
    return answer;
  });
  await quiet();
  await gate.run(KEY, () => said("3"));
  goOn();
  await first;
  const [{ available }] = gate.snapshot(KEY).budgets;
  assert.ok(available <= 4, `${available}`);
});

test("a value or an error that cannot be classified is passed on, and its slot is released", async () => {
  const gate = gateOf(1);
  const tagged = { [Symbol.toStringTag]: "Response", status: 200 };
  const throwing = { get [Symbol.toStringTag]() { throw new Error("no tag"); } };
  for (const odd of [tagged, throwing]) {
    assert.equal(await gate.run(KEY, () => odd), odd);
    const { inFlight, lastOutcome } = gate.snapshot(KEY);
    assert.deepEqual([inFlight, lastOutcome], [0, "unexpected"]);
  }
  const nameless = { get name() { throw new Error("no name"); } };
  await gate.run(KEY, fail(nameless)).then(assert.fail, (error) => assert.equal(error, nameless));
  assert.equal(gate.snapshot(KEY).inFlight, 0);
});

test("once the signal is aborted, its reason determines the outcome of an error, unless a head was observed", async () => {
  const abortedWith = (reason, head) => {
    const controller = new AbortController();
    const fn = (call) => {
      if (head !== undefined) call.observe(head);
      controller.abort(reason);
      throw new Error("the client's own words");
    };
    return outcomeOf(fn, { signal: controller.signal });
  };
  assert.equal(await abortedWith(), "local_cancelled");
  assert.equal(await abortedWith(new Error("mine")), "local_cancelled");
  assert.equal(await abortedWith(named("TimeoutError")), "local_timeout");
  assert.equal(await abortedWith(undefined, { status: 429, headers: new Headers() }), "rate_limited");
});
