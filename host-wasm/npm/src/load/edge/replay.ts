import module from "../../wasm/tidegate_replay_bg.wasm";
import { initSync } from "../../wasm/tidegate_replay.js";

initSync({ module });

export * from "../../replay.js";
