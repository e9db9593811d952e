import { initSync } from "../../wasm/tidegate_sim.js";
import { compiled } from "./compile.js";

// Spelled out in place: bundlers find the file by this very expression.
initSync({ module: await compiled(new URL("../../wasm/tidegate_sim_bg.wasm", import.meta.url)) });

export * from "../../sim.js";
