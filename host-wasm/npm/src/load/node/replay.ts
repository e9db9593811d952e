import { readFile } from "node:fs/promises";

import { initSync } from "../../wasm/tidegate_replay.js";

initSync({ module: await readFile(new URL("../../wasm/tidegate_replay_bg.wasm", import.meta.url)) });

export * from "../../replay.js";
