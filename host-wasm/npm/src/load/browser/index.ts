import init from "../../wasm/tidegate.js";

// Spelled out in place: bundlers find the file by this very expression.
await init({ module_or_path: new URL("../../wasm/tidegate_bg.wasm", import.meta.url) });

export * from "../../index.js";
