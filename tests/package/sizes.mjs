// Prints the size of what a page loads: each wasm module, the scenarios and the rest of the package's JavaScript, raw, gzip
// and brotli, beside the size recorded in sizes.json. Takes the built package (`host-wasm/npm/dist`). Fails if a part is over
// 5 % larger than recorded or is not there: a guard against accidents.
//
//     node tests/package/sizes.mjs [DIST]
//     node tests/package/sizes.mjs [DIST] --update     records the sizes

import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const KIB = 1024;
const home = dirname(fileURLToPath(import.meta.url));
const args = process.argv.slice(2).filter((arg) => arg !== "--update");
const updates = process.argv.includes("--update");
const dist = args[0] ?? join(home, "../../host-wasm/npm/dist");

/** What `tidegate/sim` has of the scenarios that have names. */
const SCENARIOS = ["wasm/tidegate_scenarios.js", "wasm/tidegate_scenario_texts.js"];

/** How much larger than recorded a part may be. */
const TOLERANCE = 0.05;
const record = join(home, "sizes.json");

const PARTS = [
  { name: "tidegate", files: ["wasm/tidegate_bg.wasm"] },
  { name: "sim", files: ["wasm/tidegate_sim_bg.wasm"] },
  { name: "scenarios", files: SCENARIOS },
  { name: "JavaScript", files: scripts(dist).filter((file) => !SCENARIOS.includes(file)) },
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
const measured = PARTS.map(({ name, files }) => ({ name, ...measure(files) }));
if (updates) {
  const sizes = Object.fromEntries(measured.map(({ name, gzip }) => [name, gzip]));
  writeFileSync(record, `${JSON.stringify(sizes, null, 2)}\n`);
}
const recorded = JSON.parse(readFileSync(record, "utf8"));
console.log(["part".padEnd(12), ...["raw", "gzip", "brotli", "recorded"].map((head) => head.padStart(8))].join(" "));
let over = 0;
for (const { name, raw, gzip, brotli } of measured) {
  const isOver = !(gzip <= recorded[name] * (1 + TOLERANCE));
  over += Number(isOver);
  const note = isOver ? "MORE THAN 5 % OVER" : "";
  console.log([name.padEnd(12), ...[raw, gzip, brotli, recorded[name]].map(kib), note].join(" ").trimEnd());
}
console.log("KiB; the recorded size is that of gzip -9");
if (over > 0) {
  console.error(`${over} of ${PARTS.length} are over 5 % larger than recorded; --update records the new sizes`);
  process.exitCode = 1;
}
