// Memory: a gate takes as much after a million calls as after a thousand.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import { RequestGate } from "tidegate";

import { until } from "../../../tests/patience.mjs";
import { quiet } from "./lib/clock.mjs";

setFlagsFromString("--expose-gc");
const gc = runInNewContext("gc");

const KEY = "provider/model";

async function memory() {
  for (let round = 0; round < 3; round += 1) {
    gc();
    await quiet();
  }
  const { heapUsed, external, arrayBuffers } = process.memoryUsage();
  // The memory of a wasm module counts as external.
  return { heap: heapUsed, external: external + arrayBuffers };
}

/** Whether it grew by more than the noise of a heap. */
function assertFlat(before, after) {
  const grown = (what) => (after[what] - before[what]) / 1024;
  assert.ok(grown("heap") < 512, `the heap grew by ${grown("heap")} KiB`);
  assert.ok(grown("external") < 64, `wasm memory grew by ${grown("external")} KiB`);
}

const waves = async (count, wave) => {
  for (let n = 0; n < count; n += 1) await wave();
};

test("memory does not grow over a million permits, including waiting calls, signals and rate limits", async () => {
  const gate = new RequestGate({ cooldownMs: 0.001 });
  gate.register(KEY, { maxParallel: 16, initialLimit: 8 });
  const { signal } = new AbortController();
  const outcomes = ["success", "success", "provider_failure", { outcome: "success", used: { inputTokens: 3 } }];
  const wave = () =>
    Promise.all(
      Array.from({ length: 100 }, async (_, n) => {
        if (n % 2 === 0) return gate.run(KEY, () => n, n % 10 === 0 ? { signal } : undefined);
        const permit = await gate.acquire(KEY, n % 5 === 0 ? { signal } : undefined);
        permit.finish(outcomes[n % outcomes.length]);
      }),
    );
  await waves(300, wave);
  const before = await memory();
  await waves(10_000, wave);
  assertFlat(before, await memory());
  assert.equal(gate.snapshot(KEY).activeLeases, 0);
});

test("memory does not grow over calls that are cancelled, time out or are denied", async () => {
  const gate = new RequestGate();
  gate.register(KEY, { maxParallel: 1 });
  const held = await gate.acquire(KEY);
  const wave = async () => {
    const controller = new AbortController();
    const { signal } = controller;
    const all = Array.from({ length: 100 }, (_, n) => gate.acquire(KEY, n % 2 ? { signal } : { timeoutMs: 0 }));
    const settled = Promise.allSettled(all);
    controller.abort();
    for (const { status } of await settled) assert.equal(status, "rejected");
  };
  await waves(100, wave);
  const before = await memory();
  await waves(500, wave);
  assertFlat(before, await memory());
  held.finish("success");
});

test("memory does not grow over events with a listener", async () => {
  const gate = new RequestGate();
  gate.register(KEY, { maxParallel: 4 });
  let heard = 0;
  gate.subscribe(() => (heard += 1));
  const wave = () => Promise.all(Array.from({ length: 100 }, (_, n) => gate.run(KEY, () => n)));
  await waves(100, wave);
  const before = await memory();
  await waves(500, wave);
  assertFlat(before, await memory());
  assert.ok(heard > 200_000, `${heard}`);
});

test("memory does not grow over gates that are created and dropped", async () => {
  const wave = async () => {
    const gate = new RequestGate();
    gate.register(KEY, { maxParallel: 2, budgets: [{ dimension: "requests", limit: 100 }] });
    const calls = Array.from({ length: 10 }, () => gate.run(KEY, () => 1));
    await Promise.all(calls);
    gate.free();
  };
  await waves(200, wave);
  const before = await memory();
  await waves(1_000, wave);
  assertFlat(before, await memory());
});

test("a permit that is no longer referenced releases its slot", async () => {
  const gate = new RequestGate();
  gate.register(KEY, { maxParallel: 1 });
  await (async () => void (await gate.acquire(KEY)))();
  assert.equal(gate.snapshot(KEY).inFlight, 1);
  await until(() => memory().then(() => gate.snapshot(KEY).inFlight), (calls) => calls === 0);
  assert.equal(gate.snapshot(KEY).lastOutcome, "local_cancelled");
  assert.equal(gate.snapshot(KEY).inFlight, 0);
});

test("a body that is no longer referenced releases its slot and its connection", async (t) => {
  let isClosed = false;
  const server = createServer((_, response) => {
    response.on("close", () => (isClosed = true));
    response.writeHead(200).write("the beginning");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const gate = new RequestGate();
  gate.register(KEY, { maxParallel: 1 });
  await (async () => void (await gate.fetch(KEY, `http://127.0.0.1:${server.address().port}/`)))();
  assert.equal(gate.snapshot(KEY).inFlight, 1);
  await until(() => memory().then(() => isClosed));
  const { inFlight, lastOutcome } = gate.snapshot(KEY);
  assert.deepEqual([inFlight, lastOutcome], [0, "local_cancelled"]);
});
