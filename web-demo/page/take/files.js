// @ts-check
/// <reference lib="webworker" />
// The module that reads and writes files. It is loaded when it is first needed: most who look at a run never do.

/** @typedef {typeof import("../pkg/tidegate_files.js")} Files */

/** @type {Promise<Files> | undefined} */
let loading;

/** The module, ready for use. @returns {Promise<Files>} */
export function files() {
  loading ??= load();
  // What failed may work the next time: the network comes and goes.
  loading.catch(() => (loading = undefined));
  return loading;
}

async function load() {
  const module = await import("../pkg/tidegate_files.js");
  await module.default({ module_or_path: new URL("../pkg/tidegate_files_bg.wasm", import.meta.url) });
  return module;
}
