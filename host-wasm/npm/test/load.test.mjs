// Errors of the browser entry when its wasm file does not load. `tests/package` tests policies.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { test } from "node:test";

import { compileWasm } from "../dist/load/browser/compile.js";

const wasm = await readFile(new URL("../dist/wasm/tidegate_bg.wasm", import.meta.url));

/** What becomes of the file of a server that answers so. */
async function loaded(t, status, type, body) {
  const server = createServer((_, response) => response.writeHead(status, type && { "content-type": type }).end(body));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  return compileWasm(new URL(`http://127.0.0.1:${server.address().port}/tidegate_bg.wasm`));
}

test("a wasm file loads by its type, or by its content where the server does not know the type", async (t) => {
  for (const type of ["application/wasm", "application/octet-stream", "application/wasm; charset=utf-8", undefined]) {
    assert.ok((await loaded(t, 200, type, wasm)) instanceof WebAssembly.Module);
  }
});

test("a missing file, a page in its place and a damaged file have different errors", async (t) => {
  const url = "http://127\\.0\\.0\\.1:\\d+/tidegate_bg\\.wasm";
  await assert.rejects(loaded(t, 404, "text/plain", ""), new RegExp(`${url} answered with status 404\\. Serve the folder`));
  await assert.rejects(loaded(t, 200, "text/html", "<!doctype html>"), new RegExp(`${url} is not wasm but text/html`));
  await assert.rejects(loaded(t, 200, undefined, ""), new RegExp(`${url} is not wasm\\.`));
  for (const type of ["application/wasm", "application/octet-stream"]) {
    await assert.rejects(loaded(t, 200, type, wasm.subarray(0, 1000)), new RegExp(`${url} does not compile: `));
  }
});

test("the error of a server that does not respond has its address and the platform's message", async (t) => {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  await assert.rejects(compileWasm(new URL(`http://127.0.0.1:${port}/a.wasm`)), (error) => {
    assert.match(error.message, /a\.wasm cannot be fetched: fetch failed\. The server is down, or it is another origin/);
    assert.ok(error.cause instanceof TypeError);
    return true;
  });
});
