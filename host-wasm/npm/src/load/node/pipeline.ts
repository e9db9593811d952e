import { readFile } from "node:fs/promises";

import { providePipelines } from "../../core.js";
import * as module from "../../wasm/tidegate_pipeline.js";

await providePipelines(async () => {
  module.initSync({ module: await readFile(new URL("../../wasm/tidegate_pipeline_bg.wasm", import.meta.url)) });
  return module;
});

export * from "../../live.js";
