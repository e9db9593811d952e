// The module that reads and writes files. It is loaded when it is first needed: most who look at a run never
// do.
import { NotLoaded } from "../fetching.ts";

type Files = typeof import("../pkg/tidegate_files.js");

/** What is wrong with a file that is there. */
const WRONG = [SyntaxError, WebAssembly.CompileError, WebAssembly.LinkError, WebAssembly.RuntimeError];

let loading: Promise<Files> | undefined;

/** Returns the module, ready for use. Rejects with `NotLoaded` if a file of it did not come. */
export function files(): Promise<Files> {
  loading ??= load();
  // What failed may work the next time: the network comes and goes.
  loading.catch(() => (loading = undefined));
  return loading;
}

async function load() {
  try {
    const module = await import("../pkg/tidegate_files.js");
    await module.default({ module_or_path: new URL("../pkg/tidegate_files_bg.wasm", import.meta.url) });
    return module;
  } catch (error) {
    throw WRONG.some((kind) => error instanceof kind) ? error : new NotLoaded("What reads and writes files");
  }
}
