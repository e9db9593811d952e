// @ts-expect-error Edge runtimes import wasm as a module that is compiled on deployment, which TypeScript does not know.
import module from "../../wasm/tidegate_sim_bg.wasm";
import { initSync } from "../../wasm/tidegate_sim.js";

initSync({ module });

export * from "../../sim.js";
