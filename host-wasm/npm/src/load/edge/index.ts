import module from "../../wasm/tidegate_bg.wasm";
import { initSync } from "../../wasm/tidegate.js";

initSync({ module });

export * from "../../index.js";
