import { providePipelines } from "../../core.js";
import wasm from "../../wasm/tidegate_pipeline_bg.wasm";
import * as module from "../../wasm/tidegate_pipeline.js";

await providePipelines(async () => {
  module.initSync({ module: wasm });
  return module;
});

export * from "../../live.js";
