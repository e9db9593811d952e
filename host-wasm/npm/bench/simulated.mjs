// Compares simulated tasks per second in wasm and native: same scenarios and seed, same profile of the compiler, best of
// three runs.
// `node bench/simulated.mjs [NAME ...]`. Fails if wasm is slower than 0.8 of native.
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";

import { Simulation } from "tidegate/sim";

const NAMES = ["falling-capacity", "two-harbours", "row-scale/rows-1024", "stress-shape/wide", "very-many/fairness-groups"];
const LEAST = 0.8;
const WORKSPACE = fileURLToPath(new URL("../../..", import.meta.url));

/** Seconds that a run takes to its end. @param {string} name */
function seconds(name) {
  const begun = performance.now();
  const run = new Simulation(name, 1);
  while (run.step());
  const taken = (performance.now() - begun) / 1e3;
  run.free();
  return taken;
}

const names = process.argv.length > 2 ? process.argv.slice(2) : NAMES;
// As the modules are compiled: with link-time optimisation of the whole program, and one codegen unit.
const args = ["run", "--quiet", "--profile", "wasm-release", "--package", "tidegate-tests", "--bin", "simulated", "--", ...names];
const told = execFileSync(process.env.CARGO ?? "cargo", args, { cwd: WORKSPACE, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
for (const name of names) seconds(name); // warms up the compiler
let logs = 0;
console.log("scenario".padEnd(28), "native tasks/s", "wasm tasks/s", "ratio");
for (const line of told.trim().split("\n")) {
  const [name, , tasks, native] = line.split(" ");
  const wasm = Math.min(seconds(name), seconds(name), seconds(name));
  const ratio = Number(native) / wasm;
  logs += Math.log(ratio);
  const rate = (taken) => Math.round(Number(tasks) / taken).toLocaleString("en");
  console.log(name.padEnd(28), rate(Number(native)).padStart(14), rate(wasm).padStart(12), ratio.toFixed(2).padStart(5));
}
const mean = Math.exp(logs / names.length);
console.log(`wasm is at ${mean.toFixed(2)} of native, the geometric mean of ${names.length} scenarios; at least ${LEAST} is wanted`);
if (mean < LEAST) process.exitCode = 1;
