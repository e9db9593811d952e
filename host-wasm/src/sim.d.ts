/** The subject of `why()`, by its index in the arrays of a `Sample`. */
export type About = { column: number } | { group: number } | { provider: number } | { slots: number } | "row_groups";
