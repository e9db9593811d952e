// Pipelines, as JavaScript uses them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import { Drop, Fatal, Pipeline, Retry } from "tidegate";

import { gate, PATIENCE_MS, until } from "../../../tests/patience.mjs";
import { quiet } from "./lib/clock.mjs";

/** Rows with a column that doubles their number. */
const doubling = (rows, settings = {}) =>
  new Pipeline({ rows, seed: (n) => ({ n }), ...settings }).column("twice", { fill: ({ n }) => 2 * n });

const sorted = (numbers) => [...numbers].sort((a, b) => a - b);

test("every row is saved exactly once, complete", async () => {
  const saved = new Map();
  const report = await doubling(1000, { rowGroupSize: 7 })
    .column("text", { after: ["twice"], fill: async ({ twice }) => `${twice}` })
    .save((rows) => {
      for (const row of rows) saved.set(row.n, [...(saved.get(row.n) ?? []), row]);
    })
    .run();
  assert.equal(saved.size, 1000);
  for (const [n, rows] of saved) assert.deepEqual(rows, [{ n, twice: 2 * n, text: `${2 * n}` }]);
  assert.deepEqual(report.stop, { reason: "completed" });
  assert.deepEqual([report.rows, report.rowsIn, report.rowsOut, report.rowsDropped], [1000, 1000, 1000, 0]);
  assert.deepEqual([report.rowGroups, report.rowGroupsDone], [143, 143]);
  assert.equal(report.columns.text.succeeded, 1000);
  assert.ok(report.elapsedMs > 0);
});

test("seeds come from arrays and other iterables, and are not changed", async () => {
  const seeds = [{ word: "tide" }, { word: "gate" }];
  for (const rows of [seeds, new Set(seeds), seeds.values()]) {
    const saved = [];
    await new Pipeline({ rows })
      .column("length", { fill: ({ word }) => word.length })
      .save((rows) => saved.push(...rows))
      .run();
    assert.deepEqual(saved, [
      { word: "tide", length: 4 },
      { word: "gate", length: 4 },
    ]);
  }
  assert.deepEqual(seeds, [{ word: "tide" }, { word: "gate" }]);
});

test("a run without rows completes at once", async () => {
  const report = await doubling(0).run();
  assert.deepEqual([report.stop.reason, report.rows, report.rowGroups], ["completed", 0, 0]);
});

test("whole row groups, rows from scratch and several columns of one task", async () => {
  const saved = [];
  await new Pipeline({ rows: 10, rowGroupSize: 4 })
    .column("draw", { strategy: "from_scratch", fill: (rows, task) => rows.map((_, row) => task.row + row) })
    .columns(["even", "half"], { after: ["draw"], fill: ({ draw }) => ({ even: draw % 2 === 0, half: draw / 2 }) })
    .column("rank", {
      strategy: "row_group",
      after: ["half"],
      fill: async (rows, task) => {
        assert.equal(rows.length, task.rows);
        return rows.map(({ half }) => half * 20);
      },
    })
    .save((rows) => saved.push(...rows))
    .run();
  saved.sort((a, b) => a.draw - b.draw);
  const expected = Array.from({ length: 10 }, (_, n) => ({ draw: n, even: n % 2 === 0, half: n / 2, rank: n * 10 }));
  assert.deepEqual(saved, expected);
});

test("a task for a row group receives the remaining rows, including skipped ones", async () => {
  const seen = [];
  const report = await new Pipeline({ rows: 6, seed: (n) => ({ n }), shutdownRate: null })
    .column("odd", { when: ({ n }) => n % 2 === 1, fill: ({ n }) => n })
    .column("after_odd", { after: ["odd"], skipWithUpstream: true, fill: ({ odd }) => odd + 1 })
    .column("small", {
      after: ["after_odd"],
      fill: ({ n }) => {
        if (n > 3) throw new Drop("request", { message: "too large" });
      },
    })
    .column("all", {
      strategy: "row_group",
      after: ["small"],
      fill: (rows) => {
        seen.push(rows.map(({ n }) => n));
        return rows.map(() => true);
      },
    })
    .run();
  assert.deepEqual(seen, [[0, 1, 2, 3]]);
  assert.deepEqual([report.columns.odd.skipped, report.columns.odd.succeeded], [3, 3]);
  assert.equal(report.columns.after_odd.skippedWithUpstream, 3);
  assert.deepEqual(report.dropped, [
    { column: "small", reason: "failed", kind: "request", rows: 2, messages: ["too large"] },
  ]);
});

test("an ordered column runs one row after the other", async () => {
  const order = [];
  await new Pipeline({ rows: 30, seed: (n) => ({ n }), rowGroupSize: 8 })
    .column("wait", { fill: async ({ n }) => {
      for (let turn = 0; turn < n % 3; turn += 1) await quiet();
    } })
    .column("place", {
      after: ["wait"],
      ordered: true,
      fill: async ({ n }) => {
        order.push(n);
        await quiet();
        order.push(n);
      },
    })
    .run();
  assert.deepEqual(
    order,
    Array.from({ length: 60 }, (_, at) => Math.floor(at / 2)),
  );
});

test("a thrown error determines the outcome: retried, dropped with its message, or reported as a bug", async () => {
  const tries = {};
  const report = await new Pipeline({ rows: 8, seed: (n) => ({ n }), shutdownRate: null, retries: 1 })
    .column("value", {
      fill: ({ n }, task) => {
        tries[n] = task.attempt;
        if (n === 0 && task.attempt < 2) throw new Retry("server_error");
        if (n === 1) throw new Retry("timeout", { message: "too slow" });
        if (n === 2) throw new Drop("not_found");
        if (n === 3) return Promise.reject(new TypeError("of no such thing"));
        if (n === 4) throw "a bare text";
        if (n === 7) throw new Retry("unreadable_answer", { message: "half a body" });
        if (n === 5 && task.attempt < 5) throw new Retry("rate_limited", { afterMs: 1 });
        if (n === 6 && task.attempt < 2) {
          throw Object.assign(new Error("late"), { name: "DeniedError", reason: "queue_timeout" });
        }
        return n;
      },
    })
    .run();
  assert.deepEqual(tries, { 0: 2, 1: 2, 2: 1, 3: 1, 4: 1, 5: 5, 6: 2, 7: 2 });
  assert.equal(report.rowsOut, 3);
  const dropped = report.dropped.map((rows) => ({ ...rows, messages: [...rows.messages].sort() }));
  assert.deepEqual(dropped, [
    { column: "value", reason: "failed", kind: "not_found", rows: 1, messages: ["not found"] },
    { column: "value", reason: "failed", kind: "other", rows: 2, messages: ["a bare text", "of no such thing"] },
    { column: "value", reason: "retries_exhausted", kind: "timeout", rows: 1, messages: ["too slow"] },
    { column: "value", reason: "retries_exhausted", kind: "unreadable_answer", rows: 1, messages: ["half a body"] },
  ]);
});

test("a bug stops the run, and the report has its message", async () => {
  const throwing = () => {
    throw new Fatal("this cannot be");
  };
  const report = await doubling(3).column("worse", { after: ["twice"], fill: throwing }).run();
  assert.deepEqual(report.stop, { reason: "fatal", rowGroup: 0, column: "worse", why: "this cannot be" });
});

test("classify applies before the rules, and an error that it throws is a bug", async () => {
  const failing = (classify) =>
    new Pipeline({ rows: 1, classify, shutdownRate: null })
      .column("value", {
        fill: (_, task) => {
          if (task.attempt === 1) throw new RangeError("at first");
          return 1;
        },
      })
      .run();
  const retried = await failing((error) => (error instanceof RangeError ? new Retry("connection") : undefined));
  assert.equal(retried.rowsOut, 1);
  assert.equal((await failing(() => undefined)).rowsDropped, 1);
  const broken = await failing(() => {
    throw new Error("no");
  });
  assert.equal(broken.stop.why, "classify threw: no");
});

test("a save that fails stops the run, and its rows are unmade", async () => {
  const report = await doubling(100, { rowGroupSize: 10, rowGroups: 1 })
    .save(async (_, group) => {
      if (group.rowGroup === 2) throw new Error("the disk is full");
    })
    .run();
  assert.deepEqual(report.stop, { reason: "checkpoint_failed", rowGroup: 2, why: "the disk is full" });
  assert.deepEqual([report.rowsOut, report.rowGroupsDone], [20, 2]);
  assert.deepEqual([report.rowsUnmade, report.dropped], [10, []]);
});

test("hooks leave rows out and change saved rows, and a hook that fails stops the run", async () => {
  const saved = [];
  const made = [];
  const pipeline = new Pipeline({ rows: 4, rowGroupSize: 4 })
    .column("seed", { strategy: "from_scratch", fill: (rows) => rows.map((_, n) => n) })
    .column("value", {
      after: ["seed"],
      fill: ({ seed }) => {
        made.push(seed);
        return seed;
      },
    })
    .preBatch(async (rows) => rows.flatMap(({ seed }, row) => (seed % 2 === 0 ? [row] : [])))
    .postBatch((rows) => {
      for (const row of rows) row.value *= 100;
    })
    .save((rows) => saved.push(...rows.map(({ value }) => value)));
  const report = await pipeline.run();
  assert.deepEqual([made, saved], [[1, 3], [100, 300]]);
  assert.deepEqual(report.dropped.map(({ reason, rows }) => [reason, rows]), [["pre_batch", 2]]);
  const failed = await pipeline.preBatch(() => [4]).run();
  assert.equal(failed.stop.reason, "hook_failed");
  assert.match(failed.stop.why, /row 4.*0 to 3/);
});

test("cancel aborts running tasks and keeps complete row groups", async () => {
  let [hung, aborted] = [0, 0];
  const controller = new AbortController();
  const hanging = (task) =>
    new Promise((_, reject) => {
      hung += 1;
      task.signal.addEventListener("abort", () => {
        aborted += 1;
        reject(task.signal.reason);
      });
    });
  const pipeline = new Pipeline({ rows: 100, seed: (n) => ({ n }), rowGroupSize: 10, rowGroups: 10 });
  pipeline.column("value", { fill: ({ n }, task) => (n < 20 ? n : hanging(task)) });
  const run = pipeline.start({ signal: controller.signal });
  await until(() => [hung, run.progress().rowsDone], ([hung, rows]) => hung === 80 && rows === 20);
  controller.abort();
  const report = await run.report;
  assert.equal(aborted, 80);
  assert.deepEqual([report.stop.reason, report.rowsOut], ["cancelled", 20]);
  assert.equal((await pipeline.start({ signal: AbortSignal.abort() }).report).stop.reason, "cancelled");
});

test("the run does not wait for a task that ignores its signal, and ignores its result", async () => {
  const [began, held] = [gate(), gate()];
  const fill = () => {
    began.open();
    return held.wait();
  };
  const run = new Pipeline({ rows: 1 }).column("value", { fill }).start();
  await began.wait();
  run.cancel();
  assert.equal((await run.report).stop.reason, "cancelled");
  held.open();
  await quiet();
});

test("winding down finishes the active row groups and starts no more", async () => {
  const saved = [];
  const held = gate();
  let began = 0;
  const slow = () => {
    began += 1;
    return held.wait();
  };
  const run = doubling(100, { rowGroupSize: 10, rowGroups: 2 })
    .column("slow", { after: ["twice"], fill: slow })
    .save((_, group) => saved.push(group.rowGroup))
    .start();
  await until(() => began, (rows) => rows === 20);
  run.windDown();
  held.open();
  const report = await run.report;
  assert.deepEqual([report.stop.reason, report.rowsOut, report.rowsNotStarted], ["wound_down", 20, 80]);
  assert.deepEqual(sorted(saved), [0, 1]);
});

test("a run continues where an earlier one ended", async () => {
  const saved = [];
  const report = await doubling(50, { rowGroupSize: 10, doneRowGroups: [0, 3] })
    .save((_, group) => saved.push(group.rowGroup))
    .run();
  assert.deepEqual(sorted(saved), [1, 2, 4]);
  assert.deepEqual([report.rowsResumed, report.rowsOut], [20, 30]);
});

test("a drained run saves complete rows, and a later run completes the missing ones", async () => {
  const made = [];
  const options = { rowGroupSize: 4, rowGroups: 1 };
  const groups = [];
  const run = doubling(8, { ...options, workers: 1 })
    .column("stops", {
      after: ["twice"],
      fill: ({ n }) => {
        if (n === 5) run.drain();
        return n;
      },
    })
    .save((rows, group) => {
      made.push(...rows.map(({ n }) => n));
      groups.push(group);
    })
    .start();
  const report = await run.report;
  assert.equal(report.stop.reason, "drained");
  assert.equal(report.rowsIn, report.rowsOut + report.rowsDropped + report.rowsUnmade);
  const missingRows = groups.flatMap(({ firstRow, unmade }) => unmade.map((row) => firstRow + row));
  const doneRowGroups = groups.filter(({ unmade }) => unmade.length === 0).map(({ rowGroup }) => rowGroup);
  const rest = await doubling(8, { ...options, doneRowGroups, missingRows })
    .save((rows) => made.push(...rows.map(({ n }) => n)))
    .run();
  assert.equal(rest.rowsResumed, report.rowsOut);
  assert.deepEqual(sorted(made), [0, 1, 2, 3, 4, 5, 6, 7]);
});

test("callbacks may cancel, call why, subscribe and start other runs at any time", async () => {
  const inner = [];
  const run = doubling(40, { rowGroupSize: 4 })
    .column("nested", {
      after: ["twice"],
      fill: async ({ n }) => {
        assert.ok(run.progress().running > 0);
        run.why();
        run.why({ column: "nested", row: n });
        if (n % 10 === 0) inner.push(await doubling(3).run());
      },
    })
    .save(async (_, group) => {
      run.progress();
      if (group.rowGroup === 5) run.cancel();
    })
    .start();
  const unsubscribe = run.subscribe((event) => {
    run.progress();
    if (event.kind === "row_group_checkpointed") run.windDown();
    if (event.kind === "job_stopping") unsubscribe();
    assert.ok(event.sequence >= 0);
  });
  const report = await run.report;
  assert.ok(["wound_down", "cancelled"].includes(report.stop.reason), report.stop.reason);
  for (const { rowsOut } of inner) assert.equal(rowsOut, 3);
  assert.equal(run.progress().finished, true);
});

test("listeners receive the events of their kinds in order, as typed objects", async () => {
  const failing = ({ n }) => {
    if (n === 1) throw new Drop("template");
  };
  const run = doubling(3, { rowGroupSize: 2 }).column("fails", { after: ["twice"], fill: failing }).start();
  const [all, ends] = [[], []];
  run.subscribe((event) => all.push(event));
  run.on("task_completed", (event) => ends.push(event));
  const silence = run.on("worker_spawned", () => assert.fail("unsubscribed"));
  silence();
  await run.report;
  assert.deepEqual(all.map(({ sequence }) => sequence), all.map((_, at) => at));
  assert.deepEqual([all[0].kind, all[0].rows, all[0].rowGroups], ["job_started", 3, 2]);
  const last = all.at(-1);
  assert.deepEqual([last.kind, last.stop, last.rowsOut], ["job_completed", "completed", 2]);
  assert.equal(ends.length, 6);
  const { column, rowGroup, row, attempt, end } = ends.find(({ end }) => end.outcome === "failed");
  assert.deepEqual([column, rowGroup, row, attempt], ["fails", 0, 1, 1]);
  assert.deepEqual(end, { outcome: "failed", kind: "template" });
  const dropped = all.find(({ kind }) => kind === "non_retryable_dropped");
  assert.deepEqual([dropped.reason, dropped.rows], [{ reason: "failed", kind: "template" }, 1]);
  assert.throws(() => run.on("no_such_kind", () => {}), /no_such_kind/);
});

test("a listener that throws does not affect other listeners or the run", async (t) => {
  const told = t.mock.method(console, "error", () => {});
  const run = doubling(5).start();
  run.on("task_completed", () => {
    throw new Error("not now");
  });
  assert.equal((await run.report).rowsOut, 5);
  assert.equal(told.mock.callCount(), 1);
});

test("why returns in words what a task and idle slots wait for", async () => {
  let release;
  const held = new Promise((resolve) => {
    release = resolve;
  });
  const pipeline = doubling(4, { rowGroupSize: 2, rowGroups: 1, workers: 3 });
  const run = pipeline.column("last", { after: ["twice"], fill: () => held }).start();
  await until(() => run.why()[0].used, (used) => used === 2);
  assert.match(run.why({ column: "twice", row: 3 }), /row group/);
  assert.equal(run.why({ column: "last", row: 0 }), null);
  const [workers] = run.why();
  assert.deepEqual([workers.name, workers.used, workers.limit], ["submission", 2, 3]);
  assert.match(workers.why, /row group/);
  assert.throws(() => run.why({ column: "first", row: 0 }), /`first`/);
  release();
  await run.report;
});

test("resources and groups bound how many tasks run at once", async () => {
  let [now, most] = [0, 0];
  await new Pipeline({ rows: 50, resources: { disk: 2 } })
    .column("io", {
      holds: { disk: 1 },
      group: { name: "files", weight: 2 },
      fill: async () => {
        now += 1;
        most = Math.max(most, now);
        await quiet();
        now -= 1;
      },
    })
    .run();
  assert.equal(most, 2);
});

test("events have columns by name, milliseconds, and one shape for each reason", async () => {
  const events = [];
  const run = new Pipeline({ rows: 3, seed: (n) => ({ n }), rowGroupSize: 3, shutdownRate: null })
    .column("seeded", { strategy: "from_scratch", fill: (rows) => rows.map(() => 0) })
    .column("value", {
      fill: ({ n }, task) => {
        if (n === 0 && task.attempt === 1) throw new Retry("rate_limited", { afterMs: 1, status: 429 });
        if (n === 1) throw new Drop("request");
      },
    })
    .preBatch(() => [2])
    .start();
  run.subscribe((event) => events.push(event));
  await run.report;
  const facts = (wanted, ...names) =>
    events.filter(({ kind }) => kind === wanted).map((event) => Object.fromEntries(names.map((name) => [name, event[name]])));
  assert.deepEqual(facts("non_retryable_dropped", "column", "row", "reason", "rows"), [
    { column: null, row: 2, reason: { reason: "pre_batch" }, rows: 1 },
    { column: "value", row: 1, reason: { reason: "failed", kind: "request" }, rows: 1 },
  ]);
  const ends = facts("task_completed", "column", "row", "end");
  assert.deepEqual(ends.find(({ row }) => row === 1).end, { outcome: "failed", kind: "request" });
  assert.deepEqual(ends.filter(({ row }) => row === 0).map(({ end }) => end), [{ outcome: "retryable", kind: "rate_limited" }, { outcome: "success" }]);
  const [deferred] = events.filter(({ kind }) => kind === "retry_deferred");
  assert.ok(deferred.untilMs > deferred.atMs && deferred.untilMs < deferred.atMs + 60_000, JSON.stringify(deferred));
  assert.deepEqual([deferred.failure, deferred.row, deferred.attempt], ["rate_limited", 0, 1]);
  assert.ok(events.filter(({ kind }) => kind === "worker_spawned").every(({ worker }) => Number.isSafeInteger(worker)));
  for (const event of events) assert.deepEqual(Object.keys(event).filter((name) => name.includes("_")), [], event.kind);
  assert.deepEqual(facts("retryable_failures", "failure", "status", "total")[0], { failure: "rate_limited", status: 429, total: 1 });
});

test("invalid settings and columns are rejected by name", () => {
  const refused = (options, message) => assert.throws(() => doubling(1, options).start(), message);
  refused({ rowGroupSize: 0 }, /`rowGroupSize` is 0; expected 1 to 16777215/);
  refused({ shutdownRate: 0 }, /`shutdownRate` is 0; expected above 0 and at most 1/);
  refused({ retryFloorMs: 10, retryCeilingMs: 5 }, /retryCeilingMs/);
  refused({ workers: 1.5 }, /workers: invalid type: floating point `1.5`, expected a whole number from 0 to 4294967295/);
  refused({ resources: { gpu: 0 } }, /resources.gpu: invalid value: integer `0`, expected a whole number from 1 to 4294967295/);
  refused({ workers: "3" }, /workers: invalid type: string "3", expected a whole number from 0 to 4294967295/);
  refused({ retryFloorMs: NaN }, /retryFloorMs: invalid type: string "NaN", expected a number/);
  refused({ degradedPauseMs: -1 }, /degradedPauseMs: .*expected a number of milliseconds from 0 to 9e12/);
  refused({ rowgroupsize: 3 }, /unknown field `rowgroupsize`, expected one of `rowGroupSize`, /);
  refused({ adaptive: { initial: 9 } }, /adaptive.initial/);
  refused({ policy: { kind: "fair" } }, /policy.kind: unknown variant `fair`, expected `strict_fair` or `bounded_borrow`/);
  refused({ policy: { kind: "bounded_borrow", reserveFraction: 2 } }, /policy.reserveFraction/);
  refused({ resources: { disk: 0 } }, /resources.disk/);
  refused({ doneRowGroups: [1] }, /doneRowGroups/);
  assert.throws(() => new Pipeline({ rows: -1 }), /`rows`/);
  assert.throws(() => new Pipeline({ rows: [{}], seed: () => ({}) }), /`seed`/);
  assert.throws(() => new Pipeline({ rows: 1 }).start(), /at least one column/);
  const second = (name, column) => () => doubling(1).column(name, column).start();
  const fill = () => 1;
  assert.throws(second("twice", { fill }), /`twice` is defined twice/);
  assert.throws(second("b", { after: ["twise"], fill }), /did you mean `twice`/);
  assert.throws(second("b", { after: ["b"], fill }), /cycle/);
  assert.throws(second("b", { aftr: ["twice"], fill }), /columns\[1\].*unknown field `aftr`/);
  assert.throws(second("b", { strategy: "row", fill }), /columns\[1\].strategy: unknown variant `row`/);
  assert.throws(second("b", { fill: 3 }), /function `fill`/);
  assert.throws(second("b", { calls: "a/b", fill }), /has none/);
  assert.throws(second("b", { holds: { nothing: 1 }, fill }), /nothing/);
});

test("adaptive row groups and both policies run to the end", async () => {
  for (const policy of [{ kind: "strict_fair" }, { kind: "bounded_borrow", defaultCeiling: 2, maxReserved: 1 }]) {
    const adaptive = { initial: 2, shrinkAfter: 3 };
    const report = await doubling(200, { rowGroupSize: 5, rowGroups: 8, adaptive, policy }).run();
    assert.equal(report.rowsOut, 200);
  }
});

test("free cancels the run, its report still resolves, and the handle throws FreedError", async () => {
  const run = new Pipeline({ rows: 5 })
    .column("value", { fill: () => new Promise(() => {}) })
    .start();
  run.free();
  run.free();
  run.cancel();
  assert.equal((await run.report).stop.reason, "cancelled");
  assert.throws(() => run.progress(), /freed/);
  if (Symbol.dispose) doubling(1).start()[Symbol.dispose]();
});

test("the memory of 100 000 rows is bounded by the active row groups", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc");
  let most = 0;
  const run = async (rows) => {
    const report = await new Pipeline({ rows, seed: (n) => ({ n }), rowGroupSize: 64 })
      .column("load", { fill: ({ n }) => new Array(100).fill(n) })
      .save((_, group) => {
        if (group.rowGroup % 100 !== 99) return;
        collect();
        most = Math.max(most, process.memoryUsage().heapUsed);
      })
      .run();
    assert.equal(report.rowsOut, rows);
  };
  await run(10_000);
  const before = most;
  most = 0;
  await run(100_000);
  // The values of all rows together take more than 80 MB.
  assert.ok(most - before < 4e6, `from ${before} bytes of heap to ${most}`);
});

test("runs that are over and forgotten leave nothing behind, freed or not", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc");
  const forgotten = new Set();
  const registry = new FinalizationRegistry((n) => forgotten.delete(n));
  const runOne = async (n) => {
    const run = doubling(2).start();
    forgotten.add(n);
    registry.register(run, n);
    await run.report;
  };
  for (let n = 0; n < 50; n += 1) await runOne(n);
  // The last run may still be on the stack.
  await until(
    () => {
      collect();
      return forgotten.size;
    },
    (held) => held <= 1,
  );
});

test("an error without a readable message stops the run with a message", { timeout: PATIENCE_MS }, async () => {
  const filling = (error) =>
    new Pipeline({ rows: 1, shutdownRate: null }).column("value", { fill: () => Promise.reject(error) }).run();
  const headers = {
    get() {
      throw new Error("no headers");
    },
  };
  const unread = await filling(Object.assign(new Error("odd"), { status: 500, headers }));
  assert.equal(unread.stop.reason, "fatal");
  assert.match(unread.stop.why, /without a readable message: no headers/);
  const nameless = { get name() { throw new Error("no name"); } };
  assert.equal((await filling(nameless)).rowsDropped, 1);
  assert.equal((await filling(new Retry("timeout", { afterMs: 1n }))).rowsDropped, 1);
});

test("a save or a hook that throws an error without a message has failed", { timeout: PATIENCE_MS }, async () => {
  const wordless = (message) => Object.defineProperty(new Error(), "message", { value: message });
  const throwing = (error) => () => {
    throw error;
  };
  for (const [message, why] of [[undefined, "Error"], [{ code: 7 }, "[object Object]"], [7, "7"], [Symbol("no"), "Symbol(no)"]]) {
    const { stop, rowsOut } = await doubling(2).save(throwing(wordless(message))).run();
    assert.deepEqual([stop.reason, stop.why, rowsOut], ["checkpoint_failed", why, 0]);
    const hooked = await doubling(2).postBatch(throwing(wordless(message))).run();
    assert.deepEqual([hooked.stop.reason, hooked.stop.why], ["hook_failed", why]);
  }
});
