import { readFile } from "node:fs/promises";

import { providePipelines } from "../../core.js";
import * as module from "../../wasm/tidegate_pipeline.js";

module.initSync({ module: await readFile(new URL("../../wasm/tidegate_pipeline_bg.wasm", import.meta.url)) });
providePipelines(module);

export * from "../../live.js";
