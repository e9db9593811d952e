// What a picture shows of a sample with very many columns and groups: as many as a person can look at.
import type { Shown } from "./pkg/tidegate_playground.js";

/** Columns that are shown at most, the first ones. */
export const MOST_COLUMNS = 64;
/** Groups that are shown at most, those with the most waiting. */
export const MOST_GROUPS = 48;

/**
 * Which part of a sample to ask the module for.
 * @param held groups that are to be shown whatever waits, in order
 */
export function whatIsShown(held?: readonly number[]): Shown {
  return { columns: MOST_COLUMNS, groups: MOST_GROUPS, held };
}
