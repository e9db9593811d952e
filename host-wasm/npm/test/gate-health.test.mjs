// Providers that are down, come back, or refuse the key.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { once } from "node:events";
import { test } from "node:test";

import { DeniedError, RequestGate } from "tidegate";
import { Pipeline } from "tidegate/pipeline";

const KEY = "provider/model";

const gateOf = (options) => {
  const gate = new RequestGate(options);
  gate.register(KEY, { maxParallel: 16 });
  return gate;
};

/** An address of the loopback interface at which nothing listens, and a server that can be started there. */
async function closedPort(answer) {
  const server = createServer(answer);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  const start = async () => {
    server.listen(port, "127.0.0.1");
    await once(server, "listening");
  };
  const stop = () => {
    server.closeAllConnections();
    server.close();
  };
  return { address: `http://127.0.0.1:${port}`, start, stop };
}

test("a provider that cannot be reached is down, and calls go on when it is back", async () => {
  const { address, start, stop } = await closedPort((_, response) => response.end("tide"));
  const gate = gateOf();
  const first = await Promise.allSettled(Array.from({ length: 6 }, () => gate.fetch(KEY, address)));
  assert.ok(first.every(({ status }) => status === "rejected"));
  const { health } = gate.snapshot(KEY);
  assert.equal(health.state, "down");
  assert.ok(health.probeInMs > 0 && health.failingForMs >= 0);
  const why = gate.why(KEY);
  assert.equal(why.kind, "outage");
  assert.match(why.text, /the provider is down; it is tried again in/);
  await assert.rejects(gate.acquire(KEY, { timeoutMs: 0 }), (error) => error instanceof DeniedError);
  await start();
  const answers = await Promise.all(Array.from({ length: 6 }, async () => (await gate.fetch(KEY, address)).text()));
  assert.deepEqual(answers, Array(6).fill("tide"));
  assert.deepEqual(gate.snapshot(KEY).health, { state: "healthy" });
  stop();
});

test("a refused key denies calls for a while, to all models of the provider, unless the gate does not look after health", async () => {
  const refuse = () => new Response("no", { status: 401 });
  const gate = gateOf();
  gate.register("provider/other", { maxParallel: 1 });
  gate.register("elsewhere/model", { maxParallel: 1 });
  const events = [];
  const listener = gate.subscribe((event) => events.push(event), { kinds: ["provider_unavailable"] });
  assert.equal((await gate.run(KEY, refuse)).status, 401);
  for (const key of [KEY, "provider/other"]) {
    await assert.rejects(gate.run(key, refuse), (error) => error instanceof DeniedError && error.reason === "unavailable");
    const { state, cause, probeInMs } = gate.snapshot(key).health;
    assert.deepEqual([state, cause, probeInMs > 0 && probeInMs <= 60_000], ["unavailable", "key_refused", true]);
  }
  assert.match(gate.why(KEY).text, /it cannot be used: the key is refused; it is tried again in/);
  assert.equal(await gate.run("elsewhere/model", () => "fine"), "fine");
  await new Promise((resolve) => setTimeout(resolve));
  assert.deepEqual(events.map(({ cause }) => cause), ["key_refused", "key_refused"]);
  listener?.();

  const careless = gateOf({ health: false });
  for (let call = 0; call < 3; call += 1) assert.equal((await careless.run(KEY, refuse)).status, 401);
  assert.throws(() => new RequestGate({ health: 1 }), TypeError);
});

test("a pipeline whose key is refused drops no row", async () => {
  const gate = gateOf();
  let calls = 0;
  const report = await new Pipeline({ rows: 100, gate })
    .column("text", { calls: KEY, fill: (_, task) => task.run(() => ((calls += 1), new Response("no", { status: 401 }))) })
    .run();
  assert.equal(report.stop.reason, "provider_unavailable");
  assert.equal(report.columns.text.failed, 0);
  assert.ok(calls <= 16, `${calls} calls`);
});
