// Retries: the core decides when, and the test controls time.

import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { test } from "node:test";

import { DeniedError, RequestGate } from "tidegate";

import { clock, quiet } from "./lib/clock.mjs";

const KEY = "provider/model";
const errorWith = (fields) => Object.assign(new Error("it did not work"), fields);

function gateOf(options = {}) {
  const gate = new RequestGate({ health: false, ...options });
  gate.register(KEY, { maxParallel: 4, algorithm: { name: "fixed", limit: 4 } });
  return gate;
}

/** A function that throws `errors` one after the other, and then returns "an answer". */
function failing(...errors) {
  const fn = async () => {
    fn.calls += 1;
    const error = errors.shift();
    if (error !== undefined) throw error;
    return "an answer";
  };
  fn.calls = 0;
  return fn;
}

test("without retries a failure is thrown at once", async () => {
  const gate = gateOf();
  const fn = failing(errorWith({ status: 500 }));
  await assert.rejects(gate.run(KEY, fn), { status: 500 });
  assert.equal(fn.calls, 1);
});

test("a request whose body is a stream of Node or an iterator is sent once", async (t) => {
  for (const body of [Readable.from(["a", "b"]), (async function* () { yield "a"; })()]) {
    let sent = 0;
    t.mock.method(globalThis, "fetch", async () => {
      sent += 1;
      return new Response("", { status: 503 });
    });
    const response = await gateOf().fetch(KEY, "http://127.0.0.1/", { method: "POST", body, duplex: "half" }, { retries: 2 });
    assert.deepEqual([response.status, sent], [503, 1]);
  }
});

test("a failed call is made again after about one second, then two, and holds no slot in between", async (t) => {
  const time = clock(t);
  const gate = gateOf();
  const fn = failing(errorWith({ status: 500 }), errorWith({ code: "ECONNRESET" }));
  const answer = gate.run(KEY, fn, { retries: 2 });
  await quiet();
  assert.deepEqual([fn.calls, gate.snapshot(KEY).inFlight], [1, 0]);
  // The pauses are of 0.8 to 1.2 s and of 1.6 to 2.4 s, and the second begins where the first ended.
  await time.advance(790);
  assert.equal(fn.calls, 1);
  await time.advance(420);
  assert.equal(fn.calls, 2);
  await time.advance(1_180);
  assert.equal(fn.calls, 2);
  await time.advance(1_230);
  assert.equal(await answer, "an answer");
  assert.deepEqual([fn.calls, time.armed], [3, 0]);
});

test("the last failure is thrown when the retries are used up, and a final failure at once", async (t) => {
  const time = clock(t);
  const gate = gateOf();
  const last = errorWith({ status: 503 });
  const fn = failing(errorWith({ status: 500 }), last);
  const answer = assert.rejects(gate.run(KEY, fn, { retries: 1 }), last);
  await time.advance(1_300);
  await answer;
  for (const error of [errorWith({ status: 400 }), errorWith({ status: 404 }), new Error("a bug")]) {
    const once = failing(error);
    await assert.rejects(gate.run(KEY, once, { retries: 9 }), error);
    assert.equal(once.calls, 1);
  }
});

test("a rate-limited call is made again after its Retry-After, without a bound and without using a retry", async (t) => {
  const time = clock(t);
  const gate = gateOf();
  const limited = () => errorWith({ status: 429, headers: { "retry-after": "3" } });
  const fn = failing(limited(), limited(), limited(), limited());
  const answer = gate.run(KEY, fn, { retries: 1 });
  await time.advance(2_900);
  assert.equal(fn.calls, 1);
  for (let more = 0; more < 4; more += 1) await time.advance(3_200);
  assert.equal(await answer, "an answer");
  assert.equal(fn.calls, 5);
});

test("a retry pause ends when the caller's signal is aborted or the gate is freed", async (t) => {
  clock(t);
  const gate = gateOf();
  const controller = new AbortController();
  const first = gate.run(KEY, failing(errorWith({ status: 500 })), { retries: 3, signal: controller.signal });
  const second = gate.run(KEY, failing(errorWith({ status: 500 })), { retries: 3 });
  await quiet();
  controller.abort();
  await assert.rejects(first, { name: "AbortError" });
  gate.shutdown();
  await assert.rejects(second, { name: "DeniedError", reason: "shutdown" });
});

test("a fetch is retried with its body, and only the last response is returned", async (t) => {
  const time = clock(t);
  const gate = gateOf();
  const bodies = [];
  const answers = [new Response("oops", { status: 500 }), new Response("slow down", { status: 429 }), new Response("an answer")];
  t.mock.method(globalThis, "fetch", async (input, init) => {
    bodies.push(await new Request(input, init).text());
    return answers[bodies.length - 1];
  });
  const fetched = gate.fetch(KEY, "http://127.0.0.1/", { method: "POST", body: "tide" }, { retries: 1 });
  await time.advance(1_300);
  await time.advance(1_300);
  await time.advance(60_000);
  assert.equal(await (await fetched).text(), "an answer");
  assert.deepEqual(bodies, ["tide", "tide", "tide"]);
  assert.equal(gate.snapshot(KEY).inFlight, 0);
});

test("a call that fails while the provider is down waits until it is back", async (t) => {
  const time = clock(t);
  const gate = gateOf({ health: true });
  const down = Array.from({ length: 12 }, () => errorWith({ code: "ECONNREFUSED" }));
  const fn = failing(...down);
  const all = Promise.all(Array.from({ length: 4 }, () => gate.run(KEY, fn, { retries: 1 })));
  let isOver = false;
  void all.finally(() => (isOver = true)).catch(() => {});
  for (let minutes = 0; minutes < 60 && !isOver; minutes += 1) await time.advance(60_000);
  assert.deepEqual(await all, Array(4).fill("an answer"));
});

test("in an outage retries are not counted, and the call is denied after ten minutes; without health they are", async (t) => {
  const time = clock(t);
  const last = errorWith({ status: 500 });
  const attempt = async (health) => {
    const [fn, began] = [failing(...Array(100).fill(last)), time.now];
    let end;
    void gateOf({ health }).run(KEY, fn, { retries: 2 }).catch((error) => (end = error));
    while (end === undefined) await time.advance(1_000);
    return { calls: fn.calls, seconds: Math.floor((time.now - began) / 1_000), end };
  };
  const outage = await attempt(true);
  assert.ok(outage.calls > 600 / 30 && outage.end instanceof DeniedError, String(outage.end));
  assert.deepEqual([outage.seconds, outage.end.reason], [600, "unavailable"]);
  const counted = await attempt(false);
  assert.deepEqual([counted.calls, counted.end], [3, last]);
});

test("retries must be a whole number", async () => {
  const gate = gateOf();
  for (const retries of [-1, 0.5, "3", NaN]) await assert.rejects(gate.run(KEY, () => 1, { retries }), /retries must be/);
});
