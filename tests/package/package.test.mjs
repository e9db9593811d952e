// The package as others get it: packed, installed from the tarball into an empty folder, and used there.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";

import { Miniflare } from "miniflare";
import { build, createServer as createDevServer } from "vite";
import { startBrowser } from "../browser/demo.mjs";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const PACKAGE = fileURLToPath(new URL("../../host-wasm/npm/", import.meta.url));

const execute = promisify(execFile);
let scratch;
let tarball;
let browser;

before(async () => {
  scratch = await mkdtemp(join(tmpdir(), "tidegate-package-"));
  const { stdout } = await execute("npm", ["pack", "--json", "--pack-destination", scratch], { cwd: PACKAGE });
  tarball = join(scratch, JSON.parse(stdout)[0].filename);
  browser = await startBrowser();
});

after(async () => {
  await browser?.close();
  await rm(scratch, { recursive: true, force: true });
});

/** A folder that holds the installed package and these files of `consumer/`, and nothing else. */
async function folderWith(...files) {
  const folder = await mkdtemp(join(scratch, "consumer-"));
  await writeFile(join(folder, "package.json"), JSON.stringify({ name: "consumer", private: true, type: "module" }));
  await execute("npm", ["install", "--offline", "--no-audit", "--no-fund", tarball], { cwd: folder });
  for (const file of files) await cp(join(HERE, "consumer", file), join(folder, file));
  return folder;
}

/** A page that loads `script`. */
async function pageFor(folder, script) {
  const page = await readFile(join(HERE, "consumer/page.html"), "utf8");
  await writeFile(join(folder, "index.html"), page.replace("SCRIPT", script));
}

const TYPES = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".mjs": "text/javascript",
  ".wasm": "application/wasm",
};

/** Serves a folder while `use` runs. What is asked for and is not there is a failure of the test. */
async function serving(folder, use) {
  const missing = [];
  const server = createServer(async (request, response) => {
    const path = normalize(new URL(request.url, "http://localhost").pathname);
    try {
      const body = await readFile(join(folder, path === "/" ? "index.html" : path));
      response.writeHead(200, { "content-type": TYPES[extname(path)] ?? "text/html" }).end(body);
    } catch {
      missing.push(path);
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    return await use(`http://127.0.0.1:${server.address().port}/`);
  } finally {
    server.close();
    assert.deepEqual(missing, []);
  }
}

/** Opens a page of the folder, and answers what `read` finds there. No complaint of the browser is let pass. */
async function inChromium(folder, read) {
  return serving(folder, (url) => onPage(url, read));
}

/** Opens a page, and answers what `read` finds there. */
async function onPage(url, read) {
  const page = await browser.newPage({ locale: "en-US" });
  const complaints = [];
  page.on("pageerror", (error) => complaints.push(`${error.stack}`));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  await page.goto(url);
  const result = await page.evaluate(read).catch((error) => complaints.push(`${error}`));
  await page.close();
  assert.deepEqual(complaints, []);
  return result;
}

/** Waits in the page for what its module leaves there. */
const outcomeOfPage = async () => {
  while (globalThis.outcome === undefined) await new Promise((resolve) => setTimeout(resolve, 10));
  return globalThis.outcome;
};

/** What is right everywhere. The simulation's report is that of this workspace's own build. */
async function assertRight(result) {
  assert.deepEqual(result.calls, {
    sum: 190,
    most: 2,
    status: 429,
    why: "cooldown",
    pauseMs: 1_000,
    waits: true,
    denied: "unregistered",
    paced: ["paced"],
    inFlight: 0,
    waiters: 0,
  });
  const saved = Array.from({ length: 50 }, (_, n) => n).filter((n) => n !== 33);
  assert.deepEqual(result.rows, {
    stop: "completed",
    rowsOut: 49,
    dropped: [{ column: "answer", reason: "failed", kind: "request", rows: 1, messages: ["request"] }],
    retried: 5,
    saved: saved.join(),
    events: true,
    finished: true,
  });
  const { simulate } = await import(pathToFileURL(join(PACKAGE, "dist/load/node/sim.js")));
  assert.deepEqual(result.simulated, JSON.parse(JSON.stringify(simulate("falling-capacity", 7))));
}

test("the tarball holds the package and nothing else", async () => {
  const folder = await folderWith();
  const installed = join(folder, "node_modules/tidegate");
  assert.deepEqual((await readdir(installed)).sort(), ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "dist", "package.json"]);
  const files = await readdir(join(installed, "dist"), { recursive: true });
  for (const file of files.filter((file) => file.endsWith(".d.ts") && !file.startsWith("wasm"))) {
    const types = (await readFile(join(installed, "dist", file), "utf8")).replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, "");
    assert.doesNotMatch(types, /\bany\b/, `${file} has a type \`any\``);
  }
});

test("Node imports it", async () => {
  const folder = await folderWith("main.mjs", "check.mjs");
  const { stdout } = await execute(process.execPath, ["main.mjs"], { cwd: folder });
  await assertRight(JSON.parse(stdout));
});

test("Deno imports it", async () => {
  const folder = await folderWith("main.mjs", "check.mjs");
  const env = { ...process.env, DENO_DIR: join(scratch, "deno"), DENO_NO_UPDATE_CHECK: "1", NO_COLOR: "1" };
  // The program itself: its npm package is a shim that asks for those of all platforms.
  const deno = process.env.DENO ?? join(HERE, "node_modules/@deno/linux-x64-glibc/deno");
  const options = ["run", "--no-remote", "--node-modules-dir=manual", "--no-prompt", "--allow-read=.", "main.mjs"];
  const { stdout } = await execute(deno, options, { cwd: folder, env });
  await assertRight(JSON.parse(stdout));
});

test("Vite bundles it, and the app runs in Chromium", async () => {
  const folder = await folderWith("app.js", "check.mjs");
  await pageFor(folder, "app.js");
  await build({ root: folder, logLevel: "error", build: { outDir: "built" } });
  const assets = await readdir(join(folder, "built/assets"));
  const wasm = assets.filter((name) => name.endsWith(".wasm"));
  assert.equal(wasm.length, 2, `one file for each module that is imported, not ${wasm.join(", ")}`);
  await assertRight(await inChromium(join(folder, "built"), outcomeOfPage));
});

test("Vite's dev server serves it with no settings of its own", async () => {
  const folder = await folderWith("app.js", "check.mjs");
  await pageFor(folder, "app.js");
  const vite = await createDevServer({ root: folder, configFile: false, logLevel: "error", server: { host: "127.0.0.1", port: 0 } });
  try {
    await vite.listen();
    const { port } = vite.httpServer.address();
    await assertRight(await onPage(`http://127.0.0.1:${port}/`, outcomeOfPage));
  } finally {
    await vite.close();
  }
});

test("a page without a bundler imports it", async () => {
  const folder = await folderWith("plain.js", "check.mjs");
  await pageFor(folder, "plain.js");
  await assertRight(await inChromium(folder, outcomeOfPage));
});

test("a page whose policy keeps the wasm from loading says what is to be allowed", async () => {
  const folder = await folderWith("blocked.js");
  await pageFor(folder, "blocked.js");
  const page = await readFile(join(folder, "index.html"), "utf8");
  for (const [policy, said] of [
    ["script-src 'self'", /the Content-Security-Policy of the page forbids wasm: add 'wasm-unsafe-eval' to its `script-src`/],
    ["connect-src 'none'", /the Content-Security-Policy of the page forbids fetching http.*_bg\.wasm: add it to its `connect-src`/],
    ["script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'", /^loaded$/],
  ]) {
    const meta = `<meta http-equiv="content-security-policy" content="${policy}">`;
    await writeFile(join(folder, "index.html"), page.replace("<script", `${meta}\n<script`));
    await serving(folder, async (url) => {
      const page = await browser.newPage({ locale: "en-US" });
      await page.goto(url);
      assert.match(await page.evaluate(outcomeOfPage), said);
      await page.close();
    });
  }
});

test("a module worker imports it", async () => {
  const folder = await folderWith("start.js", "worker.js", "check.mjs");
  await pageFor(folder, "start.js");
  await assertRight(await inChromium(folder, outcomeOfPage));
});

test("an edge worker imports it", async () => {
  const folder = await folderWith("edge.mjs", "check.mjs");
  const edge = new Miniflare({
    modules: true,
    modulesRoot: folder,
    scriptPath: join(folder, "edge.mjs"),
    modulesRules: [
      { type: "ESModule", include: ["**/*.js", "**/*.mjs"] },
      { type: "CompiledWasm", include: ["**/*.wasm"] },
    ],
    compatibilityDate: "2025-01-01",
  });
  try {
    const answer = await edge.dispatchFetch("http://localhost/");
    const body = await answer.text();
    assert.equal(answer.status, 200, body);
    await assertRight(JSON.parse(body));
  } finally {
    await edge.dispose();
  }
});

test("the conditions of the exports lead to the build for each environment", async () => {
  const { exports } = JSON.parse(await readFile(join(PACKAGE, "package.json"), "utf8"));
  for (const [entry, conditions] of Object.entries(exports)) {
    if (typeof conditions === "string") continue;
    const at = (name) => conditions[name].split("/").at(-2);
    assert.equal(Object.keys(conditions)[0], "types", `types come first in ${entry}`);
    assert.deepEqual(["workerd", "edge-light", "deno", "browser", "node", "default"].map(at), [
      "edge",
      "edge",
      "browser",
      "browser",
      "node",
      "browser",
    ]);
  }
});

for (const [module, moduleResolution] of [
  ["nodenext", "nodenext"],
  ["esnext", "bundler"],
]) {
  test(`TypeScript compiles against its types, strictly, with and without the DOM and Node (${moduleResolution})`, async () => {
    const folder = await folderWith("typed.ts", "typed-sim.ts", "typed-bare.ts");
    const options = ["--noEmit", "--strict", "--exactOptionalPropertyTypes", "--skipLibCheck", "false", "--target", "es2022"];
    options.push("--module", module, "--moduleResolution", moduleResolution);
    const tsc = join(HERE, "node_modules/typescript/lib/tsc.js");
    const compiles = async (program, ...libraries) => {
      const compiled = execute(process.execPath, [tsc, ...options, ...libraries, program], { cwd: folder });
      await compiled.catch((error) => assert.fail(`${program} ${libraries.join(" ")}: ${error.stdout}`));
    };
    const node = ["--lib", "es2022", "--types", "node", "--typeRoots", join(HERE, "node_modules/@types")];
    // Each on its own: one must not lean on what another brings along.
    await compiles("typed-bare.ts", "--lib", "es2022");
    await compiles("typed-bare.ts", ...node);
    await compiles("typed.ts", "--lib", "es2022,dom");
    await compiles("typed.ts", ...node);
    await compiles("typed-sim.ts", "--lib", "es2022,dom");
  });
}
