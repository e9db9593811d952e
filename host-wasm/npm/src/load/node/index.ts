import { readFile } from "node:fs/promises";

import { provideGates } from "../../core.js";
import * as module from "../../wasm/tidegate_gate.js";

await provideGates(async () => {
  module.initSync({ module: await readFile(new URL("../../wasm/tidegate_gate_bg.wasm", import.meta.url)) });
  return module;
});

export * from "../../index.js";
