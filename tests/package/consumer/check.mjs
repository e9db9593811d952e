// What every environment does with the package; the same answer is expected of all of them.

const KEY = "provider/writer";

/** Calls through a gate, one refused for now among them. */
async function calls({ RequestGate, DeniedError }) {
  const gate = new RequestGate({ cooldownMs: 5 });
  // AIMD stops for the whole of a Retry-After; tide first finds out what it stops.
  gate.register(KEY, { maxParallel: 2, algorithm: "aimd" });
  let [now, most] = [0, 0];
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, n) =>
      gate.run(KEY, async () => {
        now += 1;
        most = Math.max(most, now);
        await new Promise((resolve) => setTimeout(resolve, 1));
        now -= 1;
        return n;
      }),
    ),
  );
  const events = [];
  gate.subscribe((event) => events.push(event), { kinds: ["rate_limited", "lease_acquired"] });
  const refused = await gate.run(KEY, () => new Response("no", { status: 429, headers: { "retry-after-ms": "1000" } }));
  const why = gate.why(KEY)?.kind;
  const permit = await gate.acquire(KEY);
  permit.finish("success");
  const denied = await gate.acquire("provider/unknown").catch((error) => error instanceof DeniedError && error.reason);
  const { inFlight, waiters } = gate.snapshot(KEY);
  const paced = await reasonsOfDenials(gate);
  gate.free();
  // Times of the gate itself: a timer may be a little early where clocks are coarse, and is late on a busy machine.
  const [, { atMs, blockedUntilMs }, { atMs: grantedAtMs }] = events;
  const pauseMs = Math.round(blockedUntilMs - atMs);
  const sum = answers.reduce((a, b) => a + b);
  return { sum, most, status: refused.status, why, pauseMs, waits: grantedAtMs >= blockedUntilMs, denied, paced, inFlight, waiters };
}

/** Why calls are denied that come faster than tide lets them out, which is a millisecond apart until it knows how long they take. */
async function reasonsOfDenials(gate) {
  const key = "provider/spaced";
  gate.register(key, { maxParallel: 1_000 });
  const reasons = new Set();
  gate.subscribe(({ reason }) => reasons.add(reason), { kinds: ["acquire_denied"] });
  const permits = [];
  for (let permit = gate.tryAcquire(key); permit !== undefined; permit = gate.tryAcquire(key)) permits.push(permit);
  for (const permit of permits) permit.finish("success");
  while (reasons.size === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  return [...reasons];
}

/** Rows through a pipeline, some tried again, one dropped, saved once each. */
async function rows({ Drop, Pipeline, RequestGate, Retry }) {
  const gate = new RequestGate();
  gate.register(KEY, { maxParallel: 4 });
  const saved = [];
  const kinds = new Set();
  const pipeline = new Pipeline({ rows: 50, seed: (n) => ({ n }), rowGroupSize: 8, gate, shutdownRate: null })
    .column("answer", {
      calls: KEY,
      fill: ({ n }, task) =>
        task.run(async ({ signal }) => {
          if (signal.aborted) throw signal.reason;
          if (n % 10 === 0 && task.attempt === 1) throw new Retry("server_error");
          if (n === 33) throw new Drop("request");
          return 2 * n;
        }),
    })
    .column("text", { after: ["answer"], fill: ({ answer }) => `${answer}` })
    .save(async (rows) => {
      saved.push(...rows.map(({ n, answer, text }) => Number(text) === answer && answer === 2 * n && n));
    });
  const run = pipeline.start();
  run.subscribe(({ kind }) => kinds.add(kind));
  const report = await run.report;
  return {
    stop: report.stop.reason,
    rowsOut: report.rowsOut,
    dropped: report.dropped,
    retried: report.columns.answer.retryable,
    saved: saved.sort((a, b) => a - b).join(),
    events: ["job_started", "worker_spawned", "row_group_checkpointed", "job_completed"].every((kind) => kinds.has(kind)),
    finished: run.progress().finished,
  };
}

/** The same run as everywhere, by its digest. */
function simulated({ simulate }) {
  const report = simulate("falling-capacity", 7);
  return JSON.parse(JSON.stringify(report));
}

export async function check(live, sim) {
  return { calls: await calls(live), rows: await rows(live), simulated: simulated(sim) };
}
