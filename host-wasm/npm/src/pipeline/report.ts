import type { DroppedCount, RunReport } from "../wasm/tidegate.js";

/** Rows that were dropped, by cause. */
export type DroppedRows = DroppedCount & {
  /** The first few different messages of the errors behind it. */
  readonly messages: readonly string[];
};

/**
 * What a run did. `rows = rowsResumed + rowsIn + rowsNotStarted`, and `rowsIn = rowsOut + rowsDropped +
 * rowsUnmade`.
 */
export interface Report extends Readonly<Omit<RunReport, "dropped">> {
  /** `rowsDropped` by column and reason. */
  readonly dropped: readonly DroppedRows[];
}

/** Why a row group was not saved. */
export type DiscardReason = "stopped" | "unsaved" | "hook_failed";
