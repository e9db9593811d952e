// One AbortSignal shared by many calls.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";

import { Pipeline, RequestGate } from "tidegate";

import { until } from "../../../tests/patience.mjs";
import { quiet } from "./lib/clock.mjs";

const KEY = "provider/model";

/** A signal that counts its listeners. */
function counted() {
  const controller = new AbortController();
  const { signal } = controller;
  const counts = { now: 0, most: 0 };
  const change = (by) => {
    counts.now += by;
    counts.most = Math.max(counts.most, counts.now);
  };
  const { addEventListener, removeEventListener } = signal;
  signal.addEventListener = (...args) => (change(1), addEventListener.apply(signal, args));
  signal.removeEventListener = (...args) => (change(-1), removeEventListener.apply(signal, args));
  return { controller, signal, counts };
}

function gateOf(maxParallel, options) {
  const gate = new RequestGate(options);
  gate.register(KEY, { maxParallel, algorithm: { name: "fixed", limit: maxParallel } });
  return gate;
}

test("a signal shared by thousands of calls has one listener, and none after they have ended", async () => {
  const { signal, counts } = counted();
  const gate = gateOf(8);
  const options = { signal, callTimeoutMs: 60_000 };
  const all = await Promise.all(Array.from({ length: 2_000 }, (_, n) => gate.run(KEY, async () => n, options)));
  assert.equal(all.length, 2_000);
  assert.deepEqual(counts, { now: 0, most: 1 });
});

for (const hold of ["body", "head"]) {
  test(`a signal shared by thousands of fetches that hold the ${hold} has one listener`, async () => {
    const { signal, counts } = counted();
    const gate = gateOf(8);
    const fetched = Array.from({ length: 2_000 }, () => gate.fetch(KEY, "data:text/plain,tide", { signal }, { hold }));
    const texts = await Promise.all(fetched.map(async (answer) => (await answer).text()));
    assert.deepEqual([new Set(texts), texts.length, counts.most], [new Set(["tide"]), 2_000, 1]);
    // A response whose head only was held is followed until it is collected.
    if (hold === "body") assert.equal(counts.now, 0);
  });
}

test("a signal shared by the fetches of thousands of tasks has one listener, and none after they have ended", async () => {
  const { signal, counts } = counted();
  const report = await new Pipeline({ rows: 2_000, gate: gateOf(8) })
    .column("answer", {
      calls: KEY,
      fill: async (_, task) => (await task.fetch("data:text/plain,tide", { signal })).text(),
    })
    .run();
  assert.deepEqual([report.rowsOut, counts], [2_000, { now: 0, most: 1 }]);
});

test("a fetch of a task ends with the signal of its request or with its task, for the same reason, and leaves no listener", async (t) => {
  // Answers nothing, and ends as `fetch` does.
  t.mock.method(globalThis, "fetch", (_, { signal }) => new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason));
  }));
  const { controller, signal, counts } = counted();
  const reason = new Error("no longer needed");
  const seen = [];
  const fill = (_, task) => task.fetch("http://127.0.0.1/", { signal }).catch((error) => void seen.push(error));
  const start = (gate) => new Pipeline({ rows: 2, gate, shutdownRate: null }).column("answer", { calls: KEY, fill }).start();

  const gate = gateOf(2);
  const cancelled = start(gate);
  await until(() => gate.snapshot(KEY).inFlight, (calls) => calls === 2);
  assert.equal(counts.now, 1);
  cancelled.cancel();
  await cancelled.report;
  await until(() => seen.length, (ends) => ends === 2);
  assert.deepEqual([seen.map(({ name }) => name), counts.now], [["AbortError", "AbortError"], 0]);

  const aborted = start(gate);
  await until(() => gate.snapshot(KEY).inFlight, (calls) => calls === 2);
  controller.abort(reason);
  await aborted.report;
  assert.deepEqual(seen.slice(2), [reason, reason]);
  // Of a signal that is aborted already, too.
  await start(gate).report;
  assert.deepEqual([seen.slice(4), counts.most, gate.snapshot(KEY).inFlight], [[reason, reason], 1, 0]);
});

test("a hundred attempts that were refused and made again leave no listener on their shared signal", async () => {
  const refused = new Set();
  const server = createServer(({ url }, response) => {
    const isAgain = refused.has(url);
    refused.add(url);
    response.writeHead(isAgain ? 200 : 503).end("tide");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    const { signal, counts } = counted();
    const gate = gateOf(100, { health: false });
    const url = `http://127.0.0.1:${server.address().port}/`;
    const fetched = Array.from({ length: 100 }, (_, n) => gate.fetch(KEY, url + n, { signal }, { retries: 1 }));
    // Responses that are dropped must not be followed until they are collected.
    const answers = await Promise.all(fetched.map(async (answer) => [(await answer).status, await (await answer).text()].join(" ")));
    assert.deepEqual([refused.size, new Set(answers), counts], [100, new Set(["200 tide"]), { now: 0, most: 1 }]);
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

test("a fetch that fails leaves no listener on its signal", async () => {
  const { signal, counts } = counted();
  await assert.rejects(gateOf(1).fetch(KEY, "http://127.0.0.1:1/", { signal }), TypeError);
  assert.deepEqual(counts, { now: 0, most: 1 });
});

test("aborting a shared signal ends every waiting and running call once, and leaves no listener", async () => {
  const { controller, signal, counts } = counted();
  const gate = gateOf(1);
  let aborted = 0;
  const out = gate.run(
    KEY,
    (call) => new Promise((_, reject) => call.signal.addEventListener("abort", () => reject(call.signal.reason))),
    { signal, callTimeoutMs: 60_000 },
  );
  const waiting = Array.from({ length: 1_000 }, () => gate.acquire(KEY, { signal }).catch(() => void (aborted += 1)));
  const other = gate.acquire(KEY);
  await quiet();
  assert.equal(gate.snapshot(KEY).waiters, 1_001);
  controller.abort();
  await assert.rejects(out, { name: "AbortError" });
  await Promise.all(waiting);
  assert.equal(aborted, 1_000);
  (await other).finish("success");
  assert.deepEqual([gate.snapshot(KEY).waiters, gate.snapshot(KEY).inFlight, counts.most], [0, 0, 1]);
});
