import { providePipelines } from "../../core.js";
import * as module from "../../wasm/tidegate_pipeline.js";

await providePipelines(async () => {
  // Spelled out in place: bundlers find the file by this very expression.
  await module.default({ module_or_path: new URL("../../wasm/tidegate_pipeline_bg.wasm", import.meta.url) });
  return module;
});

export * from "../../live.js";
