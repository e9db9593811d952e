// What a page loads, in bytes: each wasm module, the scenarios and the rest of the package's JavaScript, raw, gzip and
// brotli, beside its limit. Takes the built package (`host-wasm/npm/dist`); fails if anything is over its limit, or is not
// there.
//
//     node tests/package/sizes.mjs [DIST]

import { readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const KIB = 1024;
const home = dirname(fileURLToPath(import.meta.url));
const dist = process.argv[2] ?? join(home, "../../host-wasm/npm/dist");

/** What `tidegate/sim` has of the scenarios that have names. */
const SCENARIOS = ["wasm/tidegate_scenarios.js", "wasm/tidegate_scenario_texts.js"];

/**
 * `goal` is what is wanted, `limit` what the check holds, both in KiB of gzip. A limit above its goal is a debt: it follows the
 * module down and never goes up. Why `pipeline` has a goal of its own is in docs/javascript.md.
 */
const PARTS = [
  { name: "gate", files: ["wasm/tidegate_gate_bg.wasm"], goal: 80, limit: 67 },
  { name: "pipeline", files: ["wasm/tidegate_pipeline_bg.wasm"], goal: 115, limit: 115 },
  { name: "sim", files: ["wasm/tidegate_sim_bg.wasm"], goal: 160, limit: 160 },
  { name: "replay", files: ["wasm/tidegate_replay_bg.wasm"], goal: 200, limit: 131 },
  { name: "scenarios", files: SCENARIOS, goal: 6, limit: 6 },
  { name: "JavaScript", files: scripts(dist).filter((file) => !SCENARIOS.includes(file)), goal: 64, limit: 64 },
];

/** Every script of the package, as paths below `folder`. */
function scripts(folder) {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile() && entry.name.endsWith(".js"));
  return files.map((file) => join(file.parentPath, file.name).slice(folder.length + 1)).sort();
}

/** The sizes of files that are fetched one by one. */
function measure(files) {
  const sizes = { raw: 0, gzip: 0, brotli: 0 };
  for (const file of files) {
    const bytes = readFileSync(join(dist, file));
    sizes.raw += bytes.length;
    sizes.gzip += gzipSync(bytes, { level: 9 }).length;
    sizes.brotli += brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }).length;
  }
  return sizes;
}

const kib = (bytes) => (bytes / KIB).toFixed(1).padStart(8);
console.log(["part".padEnd(12), ...["raw", "gzip", "brotli", "limit", "goal"].map((head) => head.padStart(8))].join(" "));
let over = 0;
for (const { name, files, goal, limit } of PARTS) {
  const { raw, gzip, brotli } = measure(files);
  const cells = [raw, gzip, brotli, limit * KIB, goal * KIB].map(kib);
  const isOver = gzip > limit * KIB;
  over += Number(isOver);
  const note = isOver ? "OVER ITS LIMIT" : gzip > goal * KIB ? "over the goal" : "";
  console.log([name.padEnd(12), ...cells, note].join(" ").trimEnd());
}
console.log("KiB; limit and goal are of gzip -9");
if (over > 0) {
  console.error(`${over} of ${PARTS.length} are over their limit`);
  process.exitCode = 1;
}
