// @ts-expect-error Edge runtimes import wasm as a module that is compiled on deployment, which TypeScript does not know.
import module from "../../wasm/tidegate_bg.wasm";
import { initSync } from "../../wasm/tidegate.js";

initSync({ module });

export * from "../../index.js";
