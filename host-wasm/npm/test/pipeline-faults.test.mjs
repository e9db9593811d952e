// Pipelines whose provider fails, over real sockets: a call has the same outcome for the gate and for its task.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";

import { Pipeline, RequestGate, Retry } from "tidegate";

const KEY = "provider/model";
const ROWS = 40;

/**
 * Runs rows through a server that answers `bad` to the calls that `isBad` names, by their number and the milliseconds since the first,
 * and well to all others. Answers how many were bad, too.
 */
async function runThrough(t, { isBad, bad, fill, gateOptions = {}, options = {} }) {
  const seen = [];
  let [failed, begun] = [0, NaN];
  const server = createServer(async (request, response) => {
    if (seen.length === 0) begun = performance.now();
    const call = { number: seen.length, body: "", isBad: isBad(seen.length, performance.now() - begun) };
    seen.push(call);
    failed += call.isBad ? 1 : 0;
    for await (const piece of request) call.body += piece;
    if (call.isBad) bad(request, response);
    else response.end("x".repeat(2_000));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const gate = new RequestGate(gateOptions);
  gate.register(KEY, { maxParallel: 4 });
  const address = `http://127.0.0.1:${server.address().port}`;
  const report = await new Pipeline({ rows: ROWS, seed: (n) => ({ n }), gate, retryFloorMs: 5, ...options })
    .column("text", { calls: KEY, fill: ({ n }, task) => fill(task, `${address}/${n}`, n) })
    .run();
  const { inFlight, waiters, activeLeases } = gate.snapshot(KEY);
  assert.deepEqual([inFlight, waiters, activeLeases], [0, 0, 0]);
  return { report, seen, failed };
}

const reset = (request) => request.socket.destroy();
const breakOff = (_, response) => {
  response.writeHead(200, { "content-length": "2000" });
  response.write("abc", () => response.destroy());
};
const fetched = async (task, page) => (await task.fetch(page)).text();
const oneInTen = (call) => call % 10 === 5;
const aWhile = (call, ms) => call >= 8 && ms < 1_500;

for (const [what, bad] of [["is reset", reset], ["breaks off", breakOff]]) {
  test(`of a provider one call in ten of which ${what}, and of one that answers so for a while, every row is made`, async (t) => {
    for (const isBad of [oneInTen, aWhile]) {
      const { report, seen, failed } = await runThrough(t, { isBad, bad, fill: fetched });
      assert.deepEqual([report.stop.reason, report.rowsOut, report.dropped], ["completed", ROWS, []]);
      assert.equal(seen.length, ROWS + failed, "each row is made once");
      if (isBad === aWhile) assert.equal(report.columns.text.retryable, 0);
    }
  });
}

test("a custom client's connection error is recognized, wrapped or not", async (t) => {
  const own = (task, page) => task.run(async ({ signal }) => (await fetch(page, { signal })).text());
  const wrapping = (task, page) =>
    task.run(async ({ signal }) => {
      try {
        return await (await fetch(page, { signal })).text();
      } catch (cause) {
        throw new Error("the client failed", { cause });
      }
    });
  const withPermit = async (task, page) => {
    const permit = await task.acquire();
    try {
      const text = await (await fetch(page, { signal: task.signal })).text();
      permit.finish("success");
      return text;
    } finally {
      permit.finish("connection_failed");
    }
  };
  for (const [fill, isBad] of [[own, aWhile], [wrapping, aWhile], [withPermit, oneInTen]]) {
    const { report } = await runThrough(t, { isBad, bad: reset, fill });
    assert.deepEqual([report.stop.reason, report.rowsOut, report.dropped], ["completed", ROWS, []]);
  }
});

test("a request with a body is sent completely each time", async (t) => {
  const fill = async (task, page, n) => (await task.fetch(new Request(page, { method: "POST", body: `row ${n}` }))).text();
  const { report, seen } = await runThrough(t, { isBad: aWhile, bad: reset, fill });
  assert.deepEqual([report.rowsOut, report.columns.text.retryable], [ROWS, 0]);
  const good = seen.filter(({ isBad }) => !isBad).map(({ body }) => body);
  assert.deepEqual(new Set(good), new Set(Array.from({ length: ROWS }, (_, n) => `row ${n}`)));
});

test("a stream body is sent once, and its task is retried if that fails", async (t) => {
  const fill = async (task, page, n) => {
    const body = new Blob([`row ${n}`]).stream();
    return (await task.fetch(page, { method: "POST", body, duplex: "half" })).text();
  };
  for (const bad of [reset, (_, response) => response.writeHead(500).end("no")]) {
    const { report } = await runThrough(t, { isBad: oneInTen, bad, fill });
    assert.deepEqual([report.rowsOut, report.dropped], [ROWS, []]);
    assert.ok(report.columns.text.retryable >= 4);
  }
});

test("an account without quota ends the run and drops no row, and a gate with health stops calling it", async (t) => {
  const bad = (_, response) =>
    response.writeHead(429, { "content-type": "application/json" }).end('{"error":{"message":"No.","code":"insufficient_quota"}}');
  const refusalOf = (task, page, read) =>
    task.run(async ({ signal }) => {
      const response = await fetch(page, { signal });
      if (!response.ok) throw await read(response);
      return response.text();
    });
  const thrown = (task, page) => refusalOf(task, page, (response) => response);
  const asClientsDo = (task, page) =>
    refusalOf(task, page, async (response) => {
      const { error } = await response.json();
      return Object.assign(new Error("429"), { status: response.status, headers: response.headers, error });
    });
  for (const fill of [fetched, thrown, asClientsDo]) {
    for (const health of [true, false]) {
      const { report, seen } = await runThrough(t, { isBad: (call) => call >= 8, bad, fill, gateOptions: { health } });
      assert.deepEqual([report.stop.reason, report.rowsOut, report.dropped], ["provider_unavailable", 8, []]);
      assert.ok(seen.length <= (health ? 8 + 4 : ROWS), `${seen.length} calls`);
    }
  }
});

test("calls to a provider that never responds end at their timeout, and it is down", async (t) => {
  const fill = async (task, page) => (await task.fetch(page, {}, { callTimeoutMs: 1_000 })).text();
  const { report } = await runThrough(t, { isBad: aWhile, bad: () => {}, fill, options: { retries: 0 } });
  assert.deepEqual([report.rowsOut, report.dropped], [ROWS, []]);
});

test("a task whose response cannot be parsed is retried", async (t) => {
  const fill = async (task, page, n) => {
    const text = await (await task.fetch(page)).text();
    return JSON.parse(n === 3 && task.attempt === 1 ? "<html>" : `{"length":${text.length}}`);
  };
  const { report } = await runThrough(t, { isBad: () => false, bad: reset, fill });
  assert.deepEqual([report.rowsOut, report.columns.text.retryable], [ROWS, 1]);
});

test("the outcome that `classify` returns applies to the task, and a failure is reported with its status", async (t) => {
  const calling = (task, page, n) =>
    task.run(() => n, { classify: () => (n === 7 && task.attempt === 1 ? "provider_failure" : undefined) });
  const first = await runThrough(t, { isBad: () => false, bad: reset, fill: calling, gateOptions: { health: false } });
  assert.deepEqual([first.report.rowsOut, first.report.columns.text.retryable], [ROWS, 1]);

  const kinds = [];
  const refusing = async (task, page) => {
    try {
      return await fetched(task, page);
    } catch (error) {
      if (error instanceof Retry) kinds.push([error.kind, error.status]);
      throw error;
    }
  };
  const bad = (_, response) => response.writeHead(502).end("no");
  const second = await runThrough(t, { isBad: oneInTen, bad, fill: refusing, gateOptions: { health: false } });
  assert.equal(second.report.rowsOut, ROWS);
  assert.deepEqual(kinds[0], ["server_error", 502]);
});

test("an error of the program is not an outage", async (t) => {
  const fill = (task, page, n) => (n === 3 ? task.fetch("http//nowhere") : fetched(task, page));
  const { report } = await runThrough(t, { isBad: () => false, bad: reset, fill, options: { shutdownRate: null } });
  assert.deepEqual(report.dropped.map(({ reason, kind, rows }) => [reason, kind, rows]), [["failed", "other", 1]]);
});
