import { provideGates } from "../../core.js";
import * as module from "../../wasm/tidegate_gate.js";

await provideGates(async () => {
  // Spelled out in place: bundlers find the file by this very expression.
  await module.default({ module_or_path: new URL("../../wasm/tidegate_gate_bg.wasm", import.meta.url) });
  return module;
});

export * from "../../index.js";
