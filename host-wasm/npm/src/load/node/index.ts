import { readFile } from "node:fs/promises";

import { isMissing, provideGates } from "../../core.js";
import * as module from "../../wasm/tidegate_gate.js";

if (isMissing()) {
  module.initSync({ module: await readFile(new URL("../../wasm/tidegate_gate_bg.wasm", import.meta.url)) });
  provideGates(module);
}

export * from "../../index.js";
