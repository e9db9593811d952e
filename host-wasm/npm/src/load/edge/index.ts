import module from "../../wasm/tidegate_live_bg.wasm";
import { initSync } from "../../wasm/tidegate_live.js";

initSync({ module });

export * from "../../index.js";
