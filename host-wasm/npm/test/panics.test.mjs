// A panic of a wasm module, which is a defect of it.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

for (const name of ["tidegate", "tidegate_sim"]) {
  test(`a panic in ${name} throws an Error with its message and the place in the Rust code`, async () => {
    // A copy for this test: a module cannot be used after a panic.
    const module = await import(`../dist/wasm/${name}.js?copy`);
    module.initSync({ module: await readFile(new URL(`../dist/wasm/${name}_bg.wasm`, import.meta.url)) });
    assert.throws(() => module.panicWith("low water"), {
      name: "Error",
      message: /^tidegate has a defect: panicked at host-wasm\/src\/lib\.rs:\d+:\d+:\nlow water$/,
    });
  });
}
