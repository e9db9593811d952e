// @ts-check
// The chart library. Its small build is a classic script, which the page loads before its modules: it leaves one global.

/** @typedef {import("../vendor/uplot/uPlot.iife.min.js").default} Plot */
/** @typedef {import("../vendor/uplot/uPlot.iife.min.js").default.Options} PlotOptions */
/** @typedef {import("../vendor/uplot/uPlot.iife.min.js").default.AlignedData} PlotData */

const { uPlot } = /** @type {{ uPlot?: typeof import("../vendor/uplot/uPlot.iife.min.js").default }} */ (/** @type {unknown} */ (globalThis));
if (!uPlot) throw new Error("the page has not loaded vendor/uplot/uPlot.iife.min.js");

export default uPlot;
