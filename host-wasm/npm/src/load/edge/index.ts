import { provideGates } from "../../core.js";
import wasm from "../../wasm/tidegate_gate_bg.wasm";
import * as module from "../../wasm/tidegate_gate.js";

await provideGates(async () => {
  module.initSync({ module: wasm });
  return module;
});

export * from "../../index.js";
