// Type-checks and runs every example in the documentation comments and the README that has imports. Examples without
// imports are fragments, and examples that read files have no files here; neither is run.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { after, before, test } from "node:test";

import { PATIENCE_MS } from "../../../tests/patience.mjs";
import { RedisServer } from "./lib/redis.mjs";

const home = fileURLToPath(new URL("..", import.meta.url));
// Inside the package, where its own name resolves to its exports.
const work = join(home, "out/examples");

/** The examples of a file, each with the line that it begins in. */
function examplesOf(path) {
  const lines = readFileSync(path, "utf8").split("\n");
  const found = [];
  let example;
  lines.forEach((line, place) => {
    const text = line.replace(/^\s*\* ?/, "");
    if (example === undefined && /^(\s*\* )?```ts$/.test(line)) example = { line: place + 1, code: [] };
    else if (example !== undefined && /^(\s*\* )?```$/.test(line)) {
      found.push(example);
      example = undefined;
    } else example?.code.push(text);
  });
  return found;
}

const sources = readdirSync(join(home, "src"), { recursive: true })
  .filter((path) => path.endsWith(".ts") && !path.startsWith("wasm"))
  .sort();
sources.push("../README.md");
const examples = sources.flatMap((path) =>
  examplesOf(join(home, "src", path))
    .map(({ line, code }) => ({ name: `${path.replace(/\W/g, "_")}_${line}`, path, line, code: code.join("\n") }))
    .filter(({ code }) => code.includes("import ")),
);

rmSync(work, { recursive: true, force: true });
mkdirSync(work, { recursive: true });
for (const { name, code } of examples) writeFileSync(join(work, `${name}.ts`), `${code}\nexport {};\n`);

let redis;
before(async () => {
  redis = await RedisServer.start();
});
after(() => redis.stop());

test("there are examples", () => assert.ok(examples.length >= 8, `${examples.length}`));

test("every example passes the type checker", () => {
  const options = {
    target: "ES2022",
    module: "NodeNext",
    moduleResolution: "NodeNext",
    lib: ["ES2022", "ESNext.Disposable", "DOM"],
    types: ["node"],
    strict: true,
    outDir: "js",
    rootDir: ".",
  };
  writeFileSync(join(work, "tsconfig.json"), JSON.stringify({ compilerOptions: options, include: ["*.ts"] }));
  const tsc = join(home, "node_modules/typescript/lib/tsc.js");
  try {
    execFileSync(process.execPath, [tsc, "-p", work], { encoding: "utf8" });
  } catch (error) {
    assert.fail(error.stdout);
  }
});

for (const { name, path, line, code } of examples) {
  if (code.includes("node:fs")) continue;
  test(`the example in ${path}, line ${line}, runs and prints what it says`, () => {
    const env = { ...process.env, REDIS_URL: redis.url };
    const ran = spawnSync(process.execPath, [join(work, "js", `${name}.js`)], { encoding: "utf8", timeout: PATIENCE_MS, env });
    assert.equal(ran.status, 0, ran.stderr);
    const said = [...code.matchAll(/console\.log\(.*\); \/\/ (.+)$/gm)].map(([, text]) => text);
    if (said.length > 0) assert.deepEqual(ran.stdout.trim().split("\n"), said);
  });
}
