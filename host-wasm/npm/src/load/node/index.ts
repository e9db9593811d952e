import { readFile } from "node:fs/promises";

import { initSync } from "../../wasm/tidegate_live.js";

initSync({ module: await readFile(new URL("../../wasm/tidegate_live_bg.wasm", import.meta.url)) });

export * from "../../index.js";
