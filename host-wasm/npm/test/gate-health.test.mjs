// Providers that are down, recover, or reject the key.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { once } from "node:events";
import { test } from "node:test";
import tls from "node:tls";

import { DeniedError, Pipeline, RequestGate } from "tidegate";

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

test("a provider that cannot be reached is down, and calls continue when it is back", async () => {
  const { address, start, stop } = await closedPort((_, response) => response.end("tide"));
  const gate = gateOf();
  const first = await Promise.allSettled(Array.from({ length: 6 }, () => gate.fetch(KEY, address)));
  assert.ok(first.every(({ status }) => status === "rejected"));
  const { health } = gate.snapshot(KEY);
  assert.equal(health.state, "down");
  assert.ok(health.probeInMs > 0 && health.failingForMs >= 0);
  const why = gate.why(KEY);
  assert.equal(why.kind, "outage");
  assert.match(why.text, /the provider is down; the next probe is in/);
  await assert.rejects(gate.acquire(KEY, { timeoutMs: 0 }), (error) => error instanceof DeniedError);
  await start();
  const answers = await Promise.all(Array.from({ length: 6 }, async () => (await gate.fetch(KEY, address)).text()));
  assert.deepEqual(answers, Array(6).fill("tide"));
  assert.deepEqual(gate.snapshot(KEY).health, { state: "healthy" });
  stop();
});

test("a rejected key denies calls to all models of the provider for a minute, unless health is off", async () => {
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
    assert.deepEqual([state, cause, probeInMs > 0 && probeInMs <= 60_000], ["unavailable", "key_rejected", true]);
  }
  assert.match(gate.why(KEY).text, /it cannot be used: the API key is rejected; the next probe is in/);
  assert.equal(await gate.run("elsewhere/model", () => "fine"), "fine");
  await new Promise((resolve) => setTimeout(resolve));
  assert.deepEqual(events.map(({ cause }) => cause), ["key_rejected", "key_rejected"]);
  listener?.();

  const careless = gateOf({ health: false });
  for (let call = 0; call < 3; call += 1) assert.equal((await careless.run(KEY, refuse)).status, 401);
  assert.throws(() => new RequestGate({ health: 1 }), TypeError);
});

test("a server without a cipher or a version of TLS in common is unavailable, not down", async (t) => {
  // It has no certificate, so it has no cipher either. The other one has TLS 1.1 at most.
  for (const versions of [{}, { minVersion: "TLSv1", maxVersion: "TLSv1.1" }]) {
    const server = tls.createServer(versions);
    t.after(() => server.close());
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const gate = gateOf();
    await assert.rejects(gate.fetch(KEY, `https://127.0.0.1:${server.address().port}/`), TypeError);
    assert.equal(gate.snapshot(KEY).lastOutcome, "tls_failed");
    assert.match(gate.why(KEY).text, /it cannot be used: its certificate is not accepted, only one side uses TLS, or/);
  }
});

test("a pipeline whose API key is rejected drops no row", async () => {
  const gate = gateOf();
  let calls = 0;
  const report = await new Pipeline({ rows: 100, gate })
    .column("text", { calls: KEY, fill: (_, task) => task.run(() => ((calls += 1), new Response("no", { status: 401 }))) })
    .run();
  assert.equal(report.stop.reason, "provider_unavailable");
  assert.equal(report.columns.text.failed, 0);
  assert.ok(calls <= 16, `${calls} calls`);
});

test("the body of an error response can make the model unavailable, and the caller can still read it", async () => {
  const body = '{"error":{"message":"You exceeded your current quota.","type":"insufficient_quota","code":"insufficient_quota"}}';
  const { address, start, stop } = await closedPort((request, response) => {
    const [status, text] = request.url === "/model" ? [404, '{"error":{"code":"model_not_found"}}'] : [429, body];
    response.writeHead(status, { "content-type": "application/json" }).end(text);
  });
  await start();
  const causeOf = (gate) => gate.snapshot(KEY).health.cause;
  for (const make of [(gate) => gate.fetch(KEY, address), (gate) => gate.run(KEY, () => fetch(address))]) {
    const gate = gateOf();
    const answer = await make(gate);
    assert.deepEqual([answer.status, await answer.text(), causeOf(gate)], [429, body, "quota_exhausted"]);
    assert.equal(gate.snapshot(KEY).inFlight, 0);
    await assert.rejects(make(gate), (error) => error instanceof DeniedError && error.reason === "unavailable");
  }
  const gate = gateOf();
  assert.equal((await gate.fetch(KEY, `${address}/model`)).status, 404);
  assert.equal(causeOf(gate), "model_not_found");
  stop();
});

test("an error response whose body is late, endless or not JSON counts by its head", async () => {
  const { address, start, stop } = await closedPort((request, response) => {
    response.writeHead(429, { "content-type": "application/json" });
    if (request.url === "/silent") response.flushHeaders();
    else if (request.url === "/endless") response.write(`"${"x".repeat(200_000)}`);
    else if (request.url === "/broken") response.write("{", () => response.destroy());
    else response.end("<html>");
  });
  await start();
  for (const page of ["silent", "endless", "broken", "html"]) {
    const gate = gateOf();
    const answer = await gate.fetch(KEY, `${address}/${page}`);
    const { lastOutcome, inFlight } = gate.snapshot(KEY);
    assert.deepEqual([answer.status, lastOutcome, inFlight], [429, "rate_limited", 0], page);
    void answer.body?.cancel().catch(() => {});
  }
  stop();
});

test("a task's calls that fail in an outage are made again without using a retry", async () => {
  let [calls, failed] = [0, 0];
  const { address, start, stop } = await closedPort((request, response) => {
    calls += 1;
    if (failed < 12) {
      failed += 1;
      if (failed % 2 === 0) return request.socket.destroy();
      return response.writeHead(503).end("down");
    }
    return response.end(request.url.slice(1));
  });
  await start();
  for (const make of [
    (task, page) => task.fetch(page),
    (task, page) => task.run(async () => {
      try {
        return await fetch(page);
      } catch (error) {
        throw Object.assign(new Error("no connection"), { status: 500, cause: error });
      }
    }),
  ]) {
    [calls, failed] = [0, 0];
    const gate = gateOf();
    let attempts = 0;
    const saved = [];
    const report = await new Pipeline({ rows: 20, seed: (n) => ({ n }), gate, retries: 0 })
      .column("text", {
        calls: KEY,
        fill: async ({ n }, task) => {
          attempts += 1;
          return (await make(task, `${address}/${n}`)).text();
        },
      })
      .save((rows) => saved.push(...rows.map(({ text }) => Number(text))))
      .run();
    assert.deepEqual([report.stop.reason, report.rowsOut, attempts], ["completed", 20, 20]);
    assert.deepEqual(saved.sort((a, b) => a - b), Array.from({ length: 20 }, (_, n) => n));
    assert.ok(calls <= 12 + 20 + 4, `${calls} calls`);
  }
  stop();
});

test("a task's call that is itself at fault ends with its own result", async () => {
  const { address, start, stop } = await closedPort((request, response) => {
    if (request.url === "/7") response.writeHead(500).end("poison");
    else setTimeout(() => response.end("fine"), 20);
  });
  await start();
  const gate = gateOf();
  const report = await new Pipeline({ rows: 400, seed: (n) => ({ n }), gate, retries: 0 })
    .column("text", { calls: KEY, fill: async ({ n }, task) => (await task.fetch(`${address}/${n}`)).text() })
    .run();
  assert.deepEqual([report.stop.reason, report.rowsOut], ["completed", 399]);
  assert.deepEqual(report.dropped.map(({ reason, kind, rows }) => [reason, kind, rows]), [["retries_exhausted", "server_error", 1]]);
  stop();
});
