import init from "../../wasm/tidegate_live.js";

// Spelled out in place: bundlers find the file by this very expression.
await init({ module_or_path: new URL("../../wasm/tidegate_live_bg.wasm", import.meta.url) });

export * from "../../index.js";
