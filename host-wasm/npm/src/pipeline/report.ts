import type { DroppedCount, RunReport } from "../wasm/tidegate.js";

/** Dropped rows, by cause. */
export type DroppedRows = DroppedCount & {
  /** The first few distinct messages of the errors that caused the drop. */
  readonly messages: readonly string[];
};

/**
 * The result of a run. `rows = rowsResumed + rowsIn + rowsNotStarted`, and `rowsIn = rowsOut + rowsDropped +
 * rowsUnmade`.
 */
export interface Report extends Readonly<Omit<RunReport, "dropped">> {
  /** `rowsDropped` by column and reason. */
  readonly dropped: readonly DroppedRows[];
}
