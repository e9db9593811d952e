// Runs in virtual time: the same decisions as native runs, and their reports.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

import { Simulation, scenario, scenarios, simulate } from "tidegate/sim";

const WORKSPACE = fileURLToPath(new URL("../../..", import.meta.url));
const LONG_MS = 24 * 3.6e6;
/** The most that a native program prints: one scenario alone has more than a megabyte. */
const MOST_BYTES = 16 << 20;

/** The lines of the native program: the one in the folder TIDEGATE_BIN, or what cargo builds. */
function native(...args) {
  const built = process.env.TIDEGATE_BIN;
  const cargo = [process.env.CARGO ?? "cargo", "run", "--quiet", "--package", "tidegate-tests", "--bin", "digests", "--"];
  const [program, ...first] = built ? [`${built}/digests`] : cargo;
  const text = execFileSync(program, [...first, ...args], { cwd: WORKSPACE, encoding: "utf8", maxBuffer: MOST_BYTES, stdio: ["ignore", "pipe", "inherit"] });
  return text.trim().split("\n");
}

/** Runs to the end. */
function finish(run) {
  while (!run.advanceTo(LONG_MS, 100_000));
  return run;
}

test("every scenario of every suite makes the same decisions as natively", () => {
  const lines = native().map((line) => line.split(" "));
  assert.deepEqual(new Set(lines.map(([name]) => name)), new Set(scenarios().map(({ name }) => name)));
  for (const [name, seed, digest] of lines) {
    const run = new Simulation(name, Number(seed));
    assert.equal(finish(run).digest(), digest, `${name} with seed ${seed}`);
  }
});

test("a run with interventions makes the same decisions as natively", () => {
  const lines = native("changed").map((line) => line.split(" "));
  assert.ok(lines.length > 5);
  for (const [name, seed, digest, changes] of lines) {
    const run = new Simulation(name, Number(seed));
    for (const { at_ms, ...what } of JSON.parse(changes)) {
      while (!run.advanceTo(at_ms, 100));
      run.change(what);
    }
    assert.equal(finish(run).digest(), digest, name);
    const again = new Simulation(run.scenario(), Number(seed));
    assert.equal(finish(again).digest(), digest, `${name}, with the changes written in`);
  }
});

test("every scenario equals the native one", () => {
  const lines = native("scenarios").map((line) => JSON.parse(line));
  assert.deepEqual(lines.map(({ name, title, description }) => ({ name, title, description })), scenarios().map(({ suite, ...info }) => info));
  for (const line of lines) {
    for (const one of [scenario(line.name), new Simulation(line.name).scenario()]) assert.equal(JSON.stringify(one), JSON.stringify(line));
  }
});

test("changes to a returned scenario or list do not affect later calls", () => {
  const [one] = scenarios();
  scenario(one.name).columns.length = 0;
  const { name } = one;
  one.name = "other";
  assert.ok(scenario(name).columns.length > 0);
  assert.equal(scenarios()[0].name, name);
});

test("a custom scenario needs only the fields without defaults", () => {
  const own = {
    name: "own",
    title: "Mine",
    description: "",
    rows: 20,
    row_group_size: 10,
    row_groups: 2,
    submission_limit: 8,
    models: [{ name: "m", max_parallel: 4, provider: { latency: { law: "constant", latency_ms: 50 } } }],
    columns: [
      { name: "seed", strategy: "from_scratch" },
      { name: "answer", strategy: "cell", after: ["seed"], model: "m" },
    ],
  };
  const { run, providers, violation, figures } = simulate(own, 3);
  assert.deepEqual(run.stop, { reason: "completed" });
  assert.deepEqual([run.rows_out, run.ended, violation], [20, 250e6, null]);
  assert.deepEqual(providers, [{ model: "m", accepted: 20, refused: 0, limit: 4 }]);
  assert.equal(figures.requests[0].busy_slot_ns, 20 * 50e6);
});

test("the error of an invalid scenario has the path of the field", () => {
  const wrong = scenario("unknown-limit");
  wrong.models[0].provider.capacity = { shape: "constant", slots: "many" };
  assert.throws(() => simulate(wrong), /models\[0\]\.provider\.capacity.*invalid type: string "many", expected a whole number from 0 to 4294967295/);
  assert.throws(() => simulate({ ...scenario("unknown-limit"), colour: 1 }), /unknown field `colour`/);
  const names = scenarios().map(({ name }) => name);
  for (const name of ["no such", "", "constructor", "__proto__"]) {
    const message = `no scenario is called \`${name}\`; there are ${names.join(", ")}`;
    for (const use of [simulate, scenario, (name) => new Simulation(name)]) assert.throws(() => use(name), new Error(message));
  }
  assert.throws(() => simulate("unknown-limit", -1), /the seed must be a whole number/);
});

test("a run in parts reports its figures and why something waits", () => {
  const run = new Simulation("two-harbours");
  while (!run.advanceTo(3_000, 50));
  const { providers, columns, running, finished } = run.sample();
  assert.equal(finished, false);
  assert.equal(running, columns.reduce((sum, { calling, waiting, local }) => sum + calling + waiting + local, 0));
  assert.ok(providers[0].waiting > 0);
  const [first] = run.why({ provider: 0 });
  assert.match(first.what, /wait/);
  assert.equal(run.report().run.stop, null);
  assert.deepEqual(finish(run).report(), simulate("two-harbours", 1));
});
