// Memory of modules that receive long strings: bounded by the longest, not by their sum.
import assert from "node:assert/strict";
import { test } from "node:test";

import { replayDecisions, Simulation, scenario } from "tidegate/sim";

const MIB = 1 << 20;
/** The memory of a wasm module counts as external, with all that it ever grew to. */
const external = () => process.memoryUsage().external;

test("strings that grow from call to call take no more memory than the longest one needs", () => {
  const longest = 8 * MIB;
  const before = external();
  for (let length = 0.1 * MIB; length <= longest; length += 0.05 * MIB) {
    assert.throws(() => replayDecisions("x".repeat(length)), /line 1/);
  }
  const grown = external() - before;
  assert.ok(grown > longest && grown < 3 * longest, `${grown / MIB} MiB`);
});

test("memory of dropped runs is reused by longer ones", () => {
  const wide = scenario("row-scale/rows-1024");
  const run = (rows) => {
    const simulation = new Simulation({ ...wide, rows, row_groups: 8, row_group_size: rows / 8 });
    simulation.advanceTo(500);
    simulation.report();
    simulation.free();
  };
  run(8 * 4096);
  const before = external();
  for (let rows = 8 * 512; rows <= 8 * 4096; rows += 8 * 64) run(rows);
  // Together these runs take hundreds of MiB; each reuses the memory of the one before.
  assert.ok(external() - before < 16 * MIB, `${(external() - before) / MIB} MiB`);
});
