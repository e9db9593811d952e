import { readFile } from "node:fs/promises";

import { initSync } from "../../wasm/tidegate.js";

initSync({ module: await readFile(new URL("../../wasm/tidegate_bg.wasm", import.meta.url)) });

export * from "../../index.js";
