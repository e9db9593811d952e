// Prints the size of what a page loads, raw, gzip and brotli, beside the size recorded in sizes.json: `package` is the built
// package (`host-wasm/npm/dist`), `page` the modules that the playground was built with. Fails if a part is over 5 % larger than
// recorded or is not there, a guard against accidents, and if docs/javascript.md has other figures than those recorded.
//
//     node tests/package/sizes.mjs package|page [DIST]
//     node tests/package/sizes.mjs package|page [DIST] --update     records the sizes, and writes them into the table of the docs

import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const KIB = 1024;
const home = dirname(fileURLToPath(import.meta.url));
const [set, folder, ...others] = process.argv.slice(2).filter((arg) => arg !== "--update");
const updates = process.argv.includes("--update");

/** How much larger than recorded a part may be. */
const TOLERANCE = 0.05;
const record = join(home, "sizes.json");
const docs = join(home, "../../docs/javascript.md");

/** What `tidegate/sim` has of the scenarios that have names. */
const SCENARIOS = ["wasm/tidegate_scenarios.js", "wasm/tidegate_scenario_texts.js"];

/** For each set, where it is built and its parts, which the docs have under these labels. */
const SETS = {
  package: {
    dist: "../../host-wasm/npm/dist",
    parts: [
      { name: "tidegate", label: "`tidegate`: gates and pipelines", files: () => ["wasm/tidegate_bg.wasm"] },
      { name: "sim", label: "`tidegate/sim`: simulation and replay", files: () => ["wasm/tidegate_sim_bg.wasm"] },
      { name: "scenarios", label: "the scenarios of `tidegate/sim`, two scripts", files: () => SCENARIOS },
      {
        name: "JavaScript",
        label: "all other scripts of the package, with their comments",
        files: (dist) => scripts(dist).filter((file) => !SCENARIOS.includes(file)),
      },
    ],
  },
  page: {
    dist: "../../web-demo/app/src/pkg",
    parts: [
      { name: "playground", label: "the module of the playground", files: () => ["tidegate_playground_bg.wasm"] },
      { name: "files", label: "its module for files, loaded when one is asked for", files: () => ["tidegate_files_bg.wasm"] },
      { name: "machines", label: "its module for machines that share a limit, loaded when their view is opened", files: () => ["tidegate_machines_bg.wasm"] },
    ],
  },
};
if (!Object.hasOwn(SETS, set ?? "") || others.length > 0) {
  console.error(`usage: sizes.mjs ${Object.keys(SETS).join("|")} [DIST] [--update]`);
  process.exit(2);
}
const dist = folder ?? join(home, SETS[set].dist);

/** Every script below a folder, as paths below it. */
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

const kib = (bytes) => (bytes === undefined ? "–" : (bytes / KIB).toFixed(1));
const rowOf = (label, { raw, gzip, brotli }) => `| ${[label, ...[raw, gzip, brotli].map(kib)].join(" | ")} |`;
const measured = SETS[set].parts.map(({ name, files }) => ({ name, sizes: measure(files(dist)) }));
const recorded = JSON.parse(readFileSync(record, "utf8"));
const lines = readFileSync(docs, "utf8").split("\n");
/** Every row of the docs, with the sizes recorded. `tests/browser/offline.test.mjs` measures the last one: what a browser gets. */
const rows = [
  ...Object.values(SETS).flatMap(({ parts }) => parts.map(({ name, label }) => ({ label, sizes: () => recorded[name] }))),
  { label: "a first load of the playground, module and all", sizes: () => recorded.firstLoad && { gzip: recorded.firstLoad.all } },
];
if (updates) {
  for (const { name, sizes } of measured) recorded[name] = sizes;
  for (const { label, sizes } of rows) {
    const row = lines.findIndex((line) => line.startsWith(`| ${label} |`));
    if (row < 0) throw new Error(`docs/javascript.md has no row that begins with "| ${label} |"`);
    if (sizes() !== undefined) lines[row] = rowOf(label, sizes());
  }
  writeFileSync(record, `${JSON.stringify(recorded, null, 2)}\n`);
  writeFileSync(docs, lines.join("\n"));
}

console.log(["part".padEnd(12), ...["raw", "gzip", "brotli", "recorded"].map((head) => head.padStart(8))].join(" "));
const faults = [];
for (const { name, sizes } of measured) {
  const gzip = recorded[name]?.gzip ?? 0;
  const isOver = !(sizes.gzip <= gzip * (1 + TOLERANCE));
  if (isOver) faults.push(`${name} is over 5 % larger than recorded; --update records the new size`);
  const figures = [sizes.raw, sizes.gzip, sizes.brotli, gzip].map((bytes) => kib(bytes).padStart(8));
  console.log([name.padEnd(12), ...figures, isOver ? "MORE THAN 5 % OVER" : ""].join(" ").trimEnd());
}
console.log("KiB; the recorded size is that of gzip -9");
for (const { label, sizes } of rows) {
  const row = rowOf(label, sizes() ?? {});
  if (!lines.includes(row)) faults.push(`docs/javascript.md has no row "${row}", as recorded; --update writes it`);
}
for (const fault of faults) console.error(fault);
process.exitCode = faults.length > 0 ? 1 : 0;
