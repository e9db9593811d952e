// @ts-check
/// <reference lib="webworker" />
// The module that reads and writes files. It is loaded when it is first needed: most who look at a run never do.

/** @typedef {typeof import("../pkg/tidegate_files.js")} Files */

/** What is wrong with a file that is there. */
const WRONG = [SyntaxError, WebAssembly.CompileError, WebAssembly.LinkError, WebAssembly.RuntimeError];

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
  const module = await or("pkg/tidegate_files.js", import("../pkg/tidegate_files.js"));
  await or("pkg/tidegate_files_bg.wasm", module.default({ module_or_path: new URL("../pkg/tidegate_files_bg.wasm", import.meta.url) }));
  return module;
}

/** What is loaded, or an error that names the file, which did not come. @template T @param {string} path @param {Promise<T>} loaded */
async function or(path, loaded) {
  try {
    return await loaded;
  } catch (error) {
    throw WRONG.some((kind) => error instanceof kind) ? error : new Missing(path);
  }
}

/** A file did not come; the page can find out why. */
export class Missing extends Error {
  /** @param {string} path below the page's own */
  constructor(path) {
    super(`${path} could not be loaded`);
    this.path = path;
  }
}
