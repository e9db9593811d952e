// How errors of API clients are classified. `tests/package` tests the clients themselves.

import assert from "node:assert/strict";
import { test } from "node:test";

import { RequestGate } from "tidegate";

import { quiet } from "./lib/clock.mjs";

const KEY = "provider/model";

/**
 * What the gate made of a call that threw `error`, after `before`. `pause`: for how many seconds it lets no call start,
 * or 0.
 */
async function learned(error, options, before = () => {}) {
  const gate = new RequestGate({ health: false });
  gate.register(KEY, { maxParallel: 4, algorithm: "aimd" });
  let pause = 0;
  gate.subscribe(({ atMs, blockedUntilMs }) => (pause = secondsBetween(atMs, blockedUntilMs)), { kinds: ["rate_limited"] });
  await assert.rejects(gate.run(KEY, async (call) => { before(call); throw error; }, options), (thrown) => thrown === error);
  const { lastOutcome, inFlight, currentLimit } = gate.snapshot(KEY);
  assert.equal(inFlight, 0);
  await quiet();
  return { lastOutcome, pause, currentLimit };
}

/** Rounded to microseconds: two times of `performance.now()` have no exact difference. */
const secondsBetween = (fromMs, toMs) => Math.round((toMs - fromMs) * 1e3) / 1e6;

const errorWith = (fields) => Object.assign(new Error("it did not work"), fields);
const LIMITED = { lastOutcome: "rate_limited", pause: 7, currentLimit: 3 };

test("an error with status 429 is a rate limit, and its Retry-After is kept", async () => {
  const headers = new Headers({ "retry-after": "7" });
  for (const error of [
    errorWith({ status: 429, headers }),
    errorWith({ statusCode: 429, headers: { "Retry-After": "7" } }),
    errorWith({ status: 429, headers: { "retry-after": ["7"] } }),
    errorWith({ response: { status: 429, headers } }),
    errorWith({ response: { statusCode: 429, headers: { "retry-after": "7" } } }),
    errorWith({ code: "ERR_BAD_REQUEST", status: 429, response: { status: 429, headers: { "retry-after": "7" }, data: {} } }),
    new Error("it did not work", { cause: errorWith({ status: 429, headers }) }),
    new Error("HTTP 429", { cause: new Response("slow down", { status: 429, headers }) }),
    errorWith({ response: new Response("slow down", { status: 429, headers }) }),
    new Response("slow down", { status: 429, headers }),
  ]) {
    assert.deepEqual(await learned(error), LIMITED);
  }
});

test("a status that is only in the words of an error says nothing, unless its response was observed before", async () => {
  assert.deepEqual(await learned(new Error("HTTP 429")), { lastOutcome: "unexpected", pause: 0, currentLimit: 4 });
  const observed = (call) => call.observe(new Response("slow down", { status: 429, headers: { "retry-after": "7" } }));
  assert.deepEqual(await learned(new Error("HTTP 429"), {}, observed), LIMITED);
});

test("an error of got is classified by its response", async () => {
  /** As got throws it: of an error of HTTP, `options`, `request` and `response` are there, and the code is of got. */
  const errorOfGot = (statusCode, headers, body) => {
    const response = Object.assign(Object.create({ ip: "127.0.0.1" }), { statusCode, statusMessage: "", headers, body });
    const request = Object.create({ get response() { return response; } });
    const error = Object.assign(new Error(`Request failed with status code ${statusCode}: GET http://127.0.0.1/`), { name: "HTTPError", code: "ERR_NON_2XX_3XX_RESPONSE" });
    for (const [name, value] of Object.entries({ response, request, options: { method: "GET" } })) {
      Object.defineProperty(error, name, { value, enumerable: false });
    }
    return error;
  };
  assert.deepEqual(await learned(errorOfGot(429, { "retry-after": "7" }, "slow down")), LIMITED);
  assert.equal((await learned(errorOfGot(503, {}, ""))).lastOutcome, "provider_failure");
  assert.equal((await learned(errorOfGot(400, {}, "{}"))).lastOutcome, "request_rejected");
  const late = Object.assign(new Error("Timeout awaiting 'request' for 50ms"), { name: "TimeoutError", code: "ETIMEDOUT", event: "request" });
  Object.defineProperty(late, "request", { value: {}, enumerable: false });
  assert.equal((await learned(late)).lastOutcome, "provider_timeout");
  const cause = Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED", syscall: "connect" });
  const unreachable = Object.assign(new Error(cause.message, { cause }), { name: "RequestError", code: "ECONNREFUSED" });
  assert.equal((await learned(unreachable)).lastOutcome, "connection_failed");
  const quota = { error: { code: "insufficient_quota", type: "insufficient_quota" } };
  // With `responseType: "json"` the body is parsed.
  for (const body of [JSON.stringify(quota), quota]) {
    assert.equal((await learned(errorOfGot(429, {}, body))).lastOutcome, "quota_exhausted");
  }
});

test("the status of an error is classified like that of a response", async () => {
  const outcomeOf = async (status) => (await learned(errorWith({ status, headers: {} }))).lastOutcome;
  assert.equal(await outcomeOf(500), "provider_failure");
  assert.equal(await outcomeOf(504), "provider_timeout");
  assert.equal(await outcomeOf(529), "rate_limited");
  assert.equal(await outcomeOf(401), "key_rejected");
  assert.equal(await outcomeOf(400), "request_rejected");
  for (const odd of [200, 600, "429", NaN, null]) assert.equal(await outcomeOf(odd), "unexpected");
  assert.equal((await learned(errorWith({ status: 500 }))).lastOutcome, "provider_failure", "also without headers");
});

test("the body that the client has read takes precedence over the status", async () => {
  const empty = { type: "insufficient_quota", code: "insufficient_quota", message: "You exceeded your current quota" };
  for (const error of [
    errorWith({ status: 429, headers: new Headers(), error: empty }),
    errorWith({ response: { status: 429, headers: {}, data: { error: empty } } }),
    errorWith({ response: new Response(JSON.stringify({ error: empty }), { status: 429 }) }),
    new Response(JSON.stringify({ error: empty }), { status: 429 }),
  ]) {
    assert.equal((await learned(error)).lastOutcome, "quota_exhausted");
  }
});

test("the response of an error can still be read by the caller", async () => {
  const response = new Response("slow down", { status: 429 });
  await learned(errorWith({ response }));
  assert.equal(await response.text(), "slow down");
});

test("an observed response takes precedence over the error, and classify over both", async () => {
  const error = errorWith({ status: 429, headers: {} });
  assert.equal((await learned(error, { classify: () => "provider_failure" })).lastOutcome, "provider_failure");
  const gate = new RequestGate();
  gate.register(KEY, { maxParallel: 1 });
  const call = gate.run(KEY, (call) => {
    call.observe({ status: 503, headers: new Headers() });
    throw error;
  });
  await assert.rejects(call);
  assert.equal(gate.snapshot(KEY).lastOutcome, "provider_failure");
});

test("a client's own timeout is a provider timeout", async () => {
  const late = Object.assign(new Error("late"), { name: "TimeoutError", request: {} });
  assert.equal((await learned(late)).lastOutcome, "provider_timeout");
  const axios = errorWith({ code: "ECONNABORTED", message: "timeout of 50ms exceeded" });
  assert.equal((await learned(axios)).lastOutcome, "provider_timeout");
  class APIConnectionTimeoutError extends Error {}
  assert.equal((await learned(new APIConnectionTimeoutError("late"))).lastOutcome, "provider_timeout");
  class APIUserAbortError extends Error {}
  assert.equal((await learned(new APIUserAbortError("aborted"))).lastOutcome, "local_cancelled");
});

test("an error whose properties throw is unexpected, and the slot is released", async () => {
  const broken = { get status() { throw new Error("mine"); } };
  assert.equal((await learned(broken)).lastOutcome, "unexpected");
  const cyclic = errorWith({ status: 500, headers: {} });
  cyclic.error = { cyclic };
  cyclic.error.itself = cyclic.error;
  assert.equal((await learned(cyclic)).lastOutcome, "unexpected");
});
