// Builds the package into dist/: the wasm modules with their bindings (cargo), then the TypeScript (tsc). Checks that
// the tarball has every file that `exports` names. `node build.mjs --no-wasm` skips the first step.

import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const home = dirname(fileURLToPath(import.meta.url));
const workspace = join(home, "..", "..");

function run(program, args, options = {}) {
  return execFileSync(program, args, { cwd: home, stdio: ["ignore", "inherit", "inherit"], ...options });
}

if (!process.argv.includes("--no-wasm")) {
  // Files of an earlier version would be packed.
  rmSync(join(home, "src/wasm"), { recursive: true, force: true });
  // The program in the folder TIDEGATE_BIN, or else the one that cargo builds.
  const built = process.env.TIDEGATE_BIN;
  const [program, ...first] = built ? [join(built, "tidegate-wasm-build")] : [process.env.CARGO ?? "cargo", "run", "-p", "tidegate-wasm-build", "--"];
  run(program, [...first, join(home, "src/wasm")]);
}

rmSync(join(home, "dist"), { recursive: true, force: true });
run(process.execPath, [join(home, "node_modules/typescript/lib/tsc.js"), "-p", "tsconfig.json"]);
mkdirSync(join(home, "dist/wasm"), { recursive: true });
// tsc does not copy files that it did not generate.
for (const file of readdirSync(join(home, "src/wasm"))) {
  if (file.endsWith(".wasm.d.ts")) continue;
  const [from, to] = [join(home, "src/wasm", file), join(home, "dist/wasm", file)];
  // The entries start the module, and the types for that need the DOM library.
  if (file.endsWith(".d.ts")) writeFileSync(to, readFileSync(from, "utf8").split("export type InitInput")[0]);
  else cpSync(from, to);
}
for (const licence of ["LICENSE-MIT", "LICENSE-APACHE"]) {
  cpSync(join(workspace, licence), join(home, licence));
}

const [tarball] = JSON.parse(run("npm", ["pack", "--dry-run", "--json"], { stdio: ["ignore", "pipe", "inherit"] }));
const packed = new Set(tarball.files.map((file) => file.path));
const { exports } = JSON.parse(readFileSync(join(home, "package.json"), "utf8"));
const named = Object.values(exports).flatMap((target) => (typeof target === "string" ? target : Object.values(target)));
const missing = [...new Set(named)].map((path) => path.slice(2)).filter((path) => !packed.has(path));
if (missing.length > 0) {
  throw new Error(`"exports" names files that are not in the tarball: ${missing.join(", ")}`);
}
for (const wasm of ["tidegate", "tidegate_sim"].map((name) => `dist/wasm/${name}_bg.wasm`)) {
  if (!packed.has(wasm) || !existsSync(join(home, wasm))) throw new Error(`${wasm} is not in the tarball`);
}
const stray = [...packed].filter((path) => !/^(dist\/|package\.json$|README\.md$|LICENSE-)/.test(path));
if (stray.length > 0) throw new Error(`the tarball has unexpected files: ${stray.join(", ")}`);
console.log(`dist/ is complete: ${packed.size} files, ${(tarball.size / 1024).toFixed(0)} KiB packed`);
