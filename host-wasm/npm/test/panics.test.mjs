// A panic of a wasm module, which is a defect of it.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

/** Stays: to free it after the panic would fail. */
let gate;

test("a panic throws an Error with its message and the place in the Rust code", async () => {
  // A copy for this test: a module cannot be used after a panic.
  const module = await import("../dist/wasm/tidegate.js?copy");
  const wasm = module.initSync({ module: await readFile(new URL("../dist/wasm/tidegate_bg.wasm", import.meta.url)) });
  gate = new module.RequestGate({});
  // The task that serves the gate waits for a command from now on.
  await new Promise(setImmediate);
  // No input is known that makes the core panic. A text that is longer than an allocation can be does: the bindings pass no such text.
  assert.throws(() => wasm.requestgate_setMaxParallel(gate.__wbg_ptr, 1, 2 ** 31, 1, 1, 4), {
    name: "Error",
    message: /^tidegate has a defect: panicked at \S+\.rs:\d+:\d+:\ncapacity overflow$/,
  });
});
