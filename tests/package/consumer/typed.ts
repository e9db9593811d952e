// Compiled and not run: what the types promise, and what they refuse.

import { DeniedError, Pipeline, type PipelineEvent, type Report, RequestGate } from "tidegate";

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const same = <A, B>(_: Same<A, B>): void => {};

const gate = new RequestGate({ cooldownMs: 1_000 });
gate.register("provider/writer", { maxParallel: 4 });
// @ts-expect-error there is no such setting
gate.register("provider/writer", { maxParalel: 4 });

const answer = await gate.run("provider/writer", async ({ signal }) => (signal.aborted ? 1 : 2));
same<typeof answer, 1 | 2>(true);

const pipeline = new Pipeline({ gate, rows: [{ topic: "tides" }], rowGroupSize: 8, shutdownRate: null })
  .column("title", {
    calls: "provider/writer",
    fill: ({ topic }, task) => task.run(async () => topic.toUpperCase()),
  })
  .column("size", {
    after: ["title"],
    fill: ({ title, topic }) => {
      same<typeof title, string>(true);
      return title.length + topic.length;
    },
  })
  .column("note", { after: ["size"], when: ({ size }) => size > 3, fill: ({ size }) => ({ size }) })
  .column("rank", { strategy: "row_group", after: ["size"], fill: async (rows) => rows.map(({ size }) => size / rows.length) })
  .columns<{ first: string; last: string }>(["first", "last"], { fill: ({ topic }) => ({ first: topic, last: topic }) })
  .save((rows, group) => {
    for (const row of rows) {
      same<typeof row.title, string>(true);
      same<typeof row.note, { size: number } | undefined>(true);
      same<typeof row.rank, number>(true);
      same<typeof row.last, string>(true);
    }
    same<typeof group.live, readonly number[]>(true);
  });

// @ts-expect-error no column is called so
pipeline.column("wrong", { after: ["titel"], fill: () => 1 });
// @ts-expect-error what is not named in `after` is not known to be there
pipeline.column("wrong", { after: ["size"], fill: ({ title }) => title });

const run = pipeline.start({ signal: AbortSignal.timeout(1_000) });
run.on("row_group_checkpointed", ({ rows, rowGroup }) => {
  same<typeof rows, number>(true);
  same<typeof rowGroup, number | null>(true);
});
run.subscribe((event: PipelineEvent) => {
  if (event.kind === "task_completed" && event.end.outcome === "failed") console.log(event.end.kind, event.column);
});
// @ts-expect-error there are no such events
run.on("row_group_checkpoint", () => {});

const report: Report = await run.report;
if (report.stop.reason === "checkpoint_failed") console.log(report.stop.rowGroup, report.stop.why);
console.log(run.why(), run.why({ column: "title", row: 0 }), run.progress().columns["title"]?.succeeded);
run.free();

try {
  const permit = await gate.acquire("provider/writer", { timeoutMs: 10, tenant: "people" });
  permit.finish({ outcome: "rate_limited", retryAfterMs: 100 });
} catch (error) {
  if (error instanceof DeniedError) console.log(error.reason, error.changesInMs);
}
