// Memory of the playground's scheduler over hours of virtual time, in this process: it is bounded by what a run is made of, and not by how
// long it lasts.
import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { after, before, test } from "node:test";
import { ARTIFACTS, loadCore, startServer } from "./demo.mjs";

const PAGE = 64 * 1024;
const HOUR_MS = 3_600_000;
/** How often a page takes a picture of its run here, in virtual ms. */
const PICTURE_MS = 10_000;

let server;
let core;

before(async () => {
  await mkdir(ARTIFACTS, { recursive: true });
  // Builds the module that the page has.
  server = await startServer();
  core = await loadCore();
});
after(() => server?.stop());

/** Runs on to an instant, and takes all that a page shows as it goes. */
function runTo(run, ms) {
  const [telemetry, lanes] = [new Float64Array(run.telemetryLength()), new Float64Array(run.lanesLength())];
  for (let now = run.now(); now < ms; now += PICTURE_MS) {
    while (!run.advanceTo(Math.min(now + PICTURE_MS, ms), 10_000));
    run.sample();
    run.readTelemetry(telemetry);
    run.readLanes(now, lanes);
  }
}

test("a run takes no more memory after six hours than after one", () => {
  const scenario = core.scenario("falling-capacity");
  // Slower calls, so that six hours have not too many of them. A run has memory for all of its rows from the start, so
  // they are hardly more than it gets done.
  const models = scenario.models.map(({ provider, ...model }) => {
    const { latency } = provider;
    return { ...model, provider: { ...provider, latency: { ...latency, median_ms: 10 * latency.median_ms } } };
  });
  const rowGroups = Math.ceil(320_000 / scenario.row_group_size);
  const run = new core.Playground({ ...scenario, models, rows: rowGroups * scenario.row_group_size, row_groups: rowGroups }, 1);
  runTo(run, HOUR_MS);
  const [early, rows] = [core.memory.buffer.byteLength, run.sample().rows_done];
  runTo(run, 6 * HOUR_MS);
  assert.equal(run.isFinished(), false, "it has rows for six hours");
  assert.ok(run.sample().rows_done > 5 * rows && rows > 10_000, `${run.sample().rows_done} rows after ${rows}`);
  const pages = (core.memory.buffer.byteLength - early) / PAGE;
  assert.ok(pages <= 2, `the memory has grown by ${pages} pages, to ${core.memory.buffer.byteLength / PAGE}`);
  run.free();
});
