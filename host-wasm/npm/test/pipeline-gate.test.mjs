// Pipelines that call through a gate.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";

import { Pipeline, RequestGate } from "tidegate";

import { until } from "../../../tests/patience.mjs";
import { clock, quiet } from "./lib/clock.mjs";

const WRITER = "provider/writer";

function gateOf(maxParallel, limits = {}) {
  const gate = new RequestGate();
  gate.register(WRITER, { maxParallel, ...limits });
  return gate;
}

/** A server that does not respond, and a promise of its first request. */
async function silentServer(t) {
  const server = createServer(() => {});
  const arrived = new Promise((resolve) => server.once("request", resolve));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { base: `http://127.0.0.1:${server.address().port}/`, arrived };
}

/** A gate at rest: nothing is out, nobody waits. */
function assertAtRest(gate, key = WRITER) {
  const { inFlight, waiters, activeLeases } = gate.snapshot(key);
  assert.deepEqual([inFlight, waiters, activeLeases], [0, 0, 0]);
}

test("calls stay within the limit, and each row is saved once", async () => {
  const gate = gateOf(4);
  let [now, most] = [0, 0];
  const saved = [];
  const report = await new Pipeline({ rows: 200, seed: (n) => ({ n }), rowGroupSize: 16, gate })
    .column("answer", {
      calls: WRITER,
      fill: ({ n }, task) =>
        task.run(async () => {
          now += 1;
          most = Math.max(most, now);
          await quiet();
          now -= 1;
          return n;
        }),
    })
    .save((rows) => saved.push(...rows.map(({ answer }) => answer)))
    .run();
  assert.equal(report.rowsOut, 200);
  assert.equal(most, 4);
  assert.deepEqual(
    saved.sort((a, b) => a - b),
    Array.from({ length: 200 }, (_, n) => n),
  );
  assertAtRest(gate);
});

test("a task that waits for its call releases its worker slot", async () => {
  const gate = gateOf(1);
  const held = await gate.acquire(WRITER);
  const done = [];
  const run = new Pipeline({ rows: 2, seed: (n) => ({ n }), workers: 1, gate })
    .column("answer", { calls: WRITER, fill: ({ n }, task) => task.run(() => n) })
    .column("local", { fill: ({ n }) => done.push(n) })
    .start();
  const yielded = new Promise((resolve) => run.on("task_yielded", resolve));
  await yielded;
  // The only slot is free for tasks without calls.
  await until(() => done.length, (rows) => rows === 2);
  assert.equal(run.progress().yielded, 2);
  held.finish("success");
  assert.equal((await run.report).rowsOut, 2);
  assertAtRest(gate);
});

test("after a 429 the task is retried after the Retry-After, and no row is lost", async (t) => {
  const time = clock(t);
  const began = time.now;
  const calls = [];
  t.mock.method(globalThis, "fetch", async (input) => {
    calls.push(time.now - began);
    if (calls.length <= 6) return new Response("no", { status: 429, headers: { "retry-after-ms": "30" } });
    return new Response(`answer to ${new URL(new Request(input).url).pathname}`);
  });
  const gate = gateOf(3);
  const saved = [];
  const run = new Pipeline({ rows: 12, seed: (n) => ({ n }), gate })
    .column("fetched", { calls: WRITER, fill: async ({ n }, task) => (await task.fetch(`http://127.0.0.1/${n}`)).text() })
    .save((rows) => saved.push(...rows))
    .start();
  let report;
  void run.report.then((ended) => (report = ended));
  while (report === undefined) await time.advance(10);
  assert.equal(report.rowsOut, 12);
  for (const { n, fetched } of saved) assert.equal(fetched, `answer to /${n}`);
  assert.equal(report.columns.fetched.retryable, 6);
  assert.equal(calls.length, 12 + 6);
  assert.ok(calls.every((ms) => ms === 0 || ms >= 30), `no call starts during the first pause: ${calls}`);
  assertAtRest(gate);
});

test("an error with a status counts as a response, for the gate and for the task", async () => {
  const gate = gateOf(8);
  const failing = (status, headers) => Object.assign(new Error(`HTTP ${status}`), { status, headers });
  const report = await new Pipeline({ rows: 4, seed: (n) => ({ n }), gate, shutdownRate: null })
    .column("answer", {
      calls: WRITER,
      fill: ({ n }, task) =>
        task.run(() => {
          if (n === 0 && task.attempt === 1) throw failing(429, { "retry-after": "0.02" });
          if (n === 1 && task.attempt === 1) throw failing(500);
          if (n === 2) throw failing(404, new Headers());
          return n;
        }),
    })
    .run();
  assert.equal(report.rowsOut, 3);
  assert.deepEqual(report.dropped, [
    { column: "answer", reason: "failed", kind: "not_found", rows: 1, messages: ["HTTP 404"] },
  ]);
  assert.equal(gate.snapshot(WRITER).consecutiveRateLimits, 0);
  assert.ok(gate.snapshot(WRITER).rateLimitCeiling > 0, "the gate learnt of the refusal");
  assertAtRest(gate);
});

test("two pipelines and another caller share one gate fairly", async () => {
  const gate = gateOf(2);
  const order = [];
  const through = (name) =>
    new Pipeline({ rows: 40, gate })
      .column(name, {
        calls: WRITER,
        fill: (_, task) =>
          task.run(async () => {
            order.push(name);
            await quiet();
          }),
      })
      .run();
  const beside = async () => {
    for (let call = 0; call < 20; call += 1) {
      await gate.run(WRITER, async () => {
        order.push("beside");
        await quiet();
      });
    }
  };
  const [first, second] = await Promise.all([through("first"), through("second"), beside()]);
  assert.deepEqual([first.rowsOut, second.rowsOut], [40, 40]);
  const half = order.slice(0, 50);
  for (const name of ["first", "second", "beside"]) {
    const count = half.filter((other) => other === name).length;
    assert.ok(count >= 10, `${name} had ${count} of the first 50 calls`);
  }
  assertAtRest(gate);
});

test("errors thrown in a call and unfinished permits never block the gate", async () => {
  const gate = gateOf(1);
  const report = await new Pipeline({ rows: 6, seed: (n) => ({ n }), gate, shutdownRate: null })
    .column("answer", {
      calls: WRITER,
      fill: async ({ n }, task) => {
        if (n % 2 === 0) {
          return task.run(() => {
            throw new Error(`call ${n} broke`);
          });
        }
        const permit = await task.acquire();
        assert.equal(permit.isFinished, false);
        permit[Symbol.dispose]();
        return n;
      },
    })
    .run();
  assert.equal(report.rowsOut, 3);
  assert.equal(report.dropped[0].rows, 3);
  assertAtRest(gate);
});

test("cancelling removes waiting calls from the gate's queue and aborts those in flight", async () => {
  const gate = gateOf(2);
  let aborted = 0;
  const run = new Pipeline({ rows: 20, gate })
    .column("answer", {
      calls: WRITER,
      fill: (_, task) =>
        task.run(
          ({ signal }) =>
            new Promise((_, reject) => {
              signal.addEventListener("abort", () => {
                aborted += 1;
                reject(signal.reason);
              });
            }),
        ),
    })
    .start();
  await until(() => gate.snapshot(WRITER), ({ inFlight, waiters }) => inFlight === 2 && waiters > 0);
  run.cancel();
  assert.equal((await run.report).stop.reason, "cancelled");
  await until(() => aborted, (calls) => calls === 2);
  assertAtRest(gate);
});

test("a task whose call is denied is retried, and a gate that is shut down ends the run", async () => {
  const gate = gateOf(1);
  const held = await gate.acquire(WRITER);
  const pipeline = new Pipeline({ rows: 2, gate, retryFloorMs: 5 }).column("answer", {
    calls: WRITER,
    fill: (_, task) => task.run(() => task.attempt, { timeoutMs: 1 }),
  });
  const first = pipeline.start();
  await until(() => first.progress().columns.answer.retryable, (tries) => tries >= 2);
  assert.match(first.why()[1].name, /provider\/writer/);
  held.finish("success");
  assert.equal((await first.report).rowsOut, 2);
  gate.shutdown();
  const report = await pipeline.run();
  assert.equal(report.rowsOut, 0);
  assert.equal(report.rowsDropped + report.rowsNotStarted, 2);
});

test("invalid calls are rejected by name", async () => {
  const gate = gateOf(1);
  const calling = (calls, fill = () => 1) => new Pipeline({ rows: 1, gate }).column("answer", { calls, fill });
  assert.throws(() => calling("provider/reader").start(), /provider\/reader.*not registered/);
  assert.throws(() => calling("nonsense").start(), /nonsense.*not registered/);
  const silent = await calling(undefined, (_, task) => task.run(() => 1)).run();
  assert.match(silent.dropped[0].messages[0], /`answer` has no `calls`/);
  const other = await calling(undefined, (_, task) => task.run(() => 1, { key: WRITER })).run();
  assert.equal(other.rowsOut, 1);
});

test("10 000 rows of calls leave nothing behind", async () => {
  const gate = gateOf(64);
  const report = await new Pipeline({ rows: 10_000, gate, rowGroupSize: 100 })
    .column("answer", { calls: WRITER, fill: (_, task) => task.run(async () => 1) })
    .column("check", { after: ["answer"], calls: WRITER, fill: (_, task) => task.run(() => 2) })
    .run();
  assert.deepEqual([report.rowsOut, report.columns.check.succeeded], [10_000, 10_000]);
  assertAtRest(gate);
});

test("a task's fetch respects the signal of its request", async (t) => {
  const { base, arrived } = await silentServer(t);
  const gate = gateOf(1);
  const reason = new Error("no longer needed");
  let thrown;
  const report = await new Pipeline({ rows: 1, gate, shutdownRate: null })
    .column("answer", {
      calls: WRITER,
      fill: async (_, task) => {
        const controller = new AbortController();
        const fetched = task.fetch(new Request(base, { signal: controller.signal }));
        await arrived;
        controller.abort(reason);
        await fetched.catch((error) => (thrown = error));
      },
    })
    .run();
  assert.equal(thrown, reason);
  assert.equal(report.rowsOut, 1);
  assertAtRest(gate);
});

test("a task of a freed gate is cancelled, as after shutdown, and no row counts as failed", async () => {
  const gate = gateOf(1);
  const pipeline = new Pipeline({ rows: 2, gate }).column("answer", {
    calls: WRITER,
    fill: (_, task) => {
      gate.free();
      return task.run(() => 1);
    },
  });
  const report = await pipeline.run();
  assert.equal(report.rowsOut, 0);
  assert.deepEqual(report.dropped.filter(({ reason }) => reason === "failed"), []);
});

test("the body of a returned error response is cancelled", async () => {
  const gate = gateOf(1);
  let isCancelled = false;
  const failing = () => {
    const body = new ReadableStream({ cancel: () => void (isCancelled = true) });
    return new Response(body, { status: 404 });
  };
  const report = await new Pipeline({ rows: 1, gate, shutdownRate: null })
    .column("answer", { calls: WRITER, fill: (_, task) => task.run(failing) })
    .run();
  assert.equal(report.dropped[0].kind, "not_found");
  assert.equal(isCancelled, true);
});

test("a task's call uses the signal of the task, and rejects another one", async () => {
  const gate = gateOf(1);
  const report = await new Pipeline({ rows: 1, gate, shutdownRate: null })
    .column("answer", { calls: WRITER, fill: (_, task) => task.run(() => 1, { signal: AbortSignal.abort() }) })
    .run();
  assert.match(report.dropped[0].messages[0], /no setting `signal`/);
  assertAtRest(gate);
});

test("the events of a call name the task that makes it, and those of other calls name none", async () => {
  const gate = gateOf(4);
  const events = [];
  const stop = gate.subscribe((event) => events.push(event), { kinds: ["lease_acquired", "call_completed"] });
  await gate.run(WRITER, () => "mine");
  await new Pipeline({ rows: 10, seed: (n) => ({ n }), rowGroupSize: 4, gate })
    .column("local", { fill: ({ n }) => n })
    .column("answer", { calls: WRITER, after: ["local"], fill: ({ n }, task) => task.run(() => n) })
    .run();
  await quiet();
  stop();
  for (const kind of ["lease_acquired", "call_completed"]) {
    const [own, ...tasks] = events.filter((event) => event.kind === kind).map(({ task }) => task);
    assert.equal(own, undefined);
    const rows = tasks.map(({ rowGroup, row }) => rowGroup * 4 + row).sort((a, b) => a - b);
    assert.deepEqual(rows, Array.from({ length: 10 }, (_, n) => n));
    const { run } = tasks[0];
    assert.ok(tasks.every((task) => task.run === run && task.column === 1 && task.attempt === 1), JSON.stringify(tasks));
  }
});
