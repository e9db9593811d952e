/** Something that waits, and the constraint that binds it. */
export interface Why {
  /** What waits, or is idle. */
  what: string;
  /** The binding constraint, in words. */
  why: string;
  /** How many wait for this. */
  count: number;
}
