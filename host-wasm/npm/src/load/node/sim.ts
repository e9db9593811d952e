import { readFile } from "node:fs/promises";

import { initSync } from "../../wasm/tidegate_sim.js";

initSync({ module: await readFile(new URL("../../wasm/tidegate_sim_bg.wasm", import.meta.url)) });

export * from "../../sim.js";
