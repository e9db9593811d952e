import module from "../../wasm/tidegate_sim_bg.wasm";
import { initSync } from "../../wasm/tidegate_sim.js";

initSync({ module });

export * from "../../sim.js";
