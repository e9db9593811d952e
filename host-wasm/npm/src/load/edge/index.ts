import { isMissing, provideGates } from "../../core.js";
import wasm from "../../wasm/tidegate_gate_bg.wasm";
import * as module from "../../wasm/tidegate_gate.js";

if (isMissing()) {
  module.initSync({ module: wasm });
  provideGates(module);
}

export * from "../../index.js";
