/**
 * The target of `require("tidegate")`. The package has ES modules only, because its WebAssembly loads during
 * import.
 */

throw new Error(
  'tidegate is an ES module and cannot be loaded by require(). Use `import { RequestGate } from "tidegate"` in a file that is an ES ' +
    'module (a name that ends in .mjs, or "type": "module" in package.json), or `const { RequestGate } = await import("tidegate")` ' +
    "in a CommonJS file.",
);
