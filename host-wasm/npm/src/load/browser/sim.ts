import init from "../../wasm/tidegate_sim.js";

// Spelled out in place: bundlers find the file by this very expression.
await init({ module_or_path: new URL("../../wasm/tidegate_sim_bg.wasm", import.meta.url) });

export * from "../../sim.js";
