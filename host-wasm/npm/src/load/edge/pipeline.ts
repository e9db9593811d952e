import { providePipelines } from "../../core.js";
import wasm from "../../wasm/tidegate_pipeline_bg.wasm";
import * as module from "../../wasm/tidegate_pipeline.js";

module.initSync({ module: wasm });
providePipelines(module);

export * from "../../live.js";
