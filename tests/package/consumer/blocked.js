// A module of a page whose policy keeps the package from loading.

const loading = import("./node_modules/tidegate/dist/load/browser/index.js");
globalThis.outcome = loading.then(() => "loaded", (error) => error.message);
