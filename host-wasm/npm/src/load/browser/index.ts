import { initSync } from "../../wasm/tidegate.js";
import { compileWasm } from "./compile.js";

// Must be written here in full: bundlers find the file by this expression.
initSync({ module: await compileWasm(new URL("../../wasm/tidegate_bg.wasm", import.meta.url)) });

export * from "../../index.js";
