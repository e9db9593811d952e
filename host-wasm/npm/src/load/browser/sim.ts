import { initSync } from "../../wasm/tidegate_sim.js";
import { compileWasm } from "./compile.js";

// Spelled out in place: bundlers find the file by this very expression.
initSync({ module: await compileWasm(new URL("../../wasm/tidegate_sim_bg.wasm", import.meta.url)) });

export * from "../../sim.js";
