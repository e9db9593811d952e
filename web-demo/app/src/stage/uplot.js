// @ts-check
// The chart library. Its small build is a classic script, which the page loads before its modules: it leaves one global.

/** @typedef {import("../vendor/uplot/uPlot.iife.min.js")} Plot */
/** @typedef {import("../vendor/uplot/uPlot.iife.min.js").Options} PlotOptions */
/** @typedef {import("../vendor/uplot/uPlot.iife.min.js").AlignedData} PlotData */

const { uPlot: loaded } = /** @type {{ uPlot?: typeof import("../vendor/uplot/uPlot.iife.min.js") }} */ (/** @type {unknown} */ (globalThis));
if (!loaded) throw new Error("the page has not loaded vendor/uplot/uPlot.iife.min.js");
const uPlot = loaded;

export default uPlot;
