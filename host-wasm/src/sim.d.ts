/** What `why()` is asked about, by its place in the arrays of a `Sample`. */
export type About = { column: number } | { group: number } | { provider: number } | { slots: number } | "row_groups";
