// Runs the browser tests named, or all of them, against one server: building the page takes longer than most tests. Two
// files at a time, because a test mostly waits; three are no faster on two cores.
import { spawn } from "node:child_process";
import { readdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { startServer } from "./demo.mjs";

const here = fileURLToPath(new URL(".", import.meta.url));
const named = process.argv.slice(2);
const files = named.length > 0 ? named : (await readdir(here)).filter((name) => name.endsWith(".test.mjs")).map((name) => `${here}${name}`);
const server = await startServer();
const tests = spawn(process.execPath, ["--test", "--test-concurrency=2", ...files], {
  stdio: "inherit",
  env: { ...process.env, TIDEGATE_PLAYGROUND: server.url },
});
process.exitCode = await new Promise((resolve) => tests.on("close", (code) => resolve(code ?? 1)));
await server.stop();
