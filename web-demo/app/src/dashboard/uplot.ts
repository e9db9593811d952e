// The chart library and the names of its types.
import uPlot from "uplot";

export type Plot = uPlot;
export type PlotOptions = uPlot.Options;
export type PlotData = uPlot.AlignedData;
export default uPlot;
