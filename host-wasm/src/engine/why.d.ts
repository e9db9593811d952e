/** Something that waits, and the one thing that keeps it. */
export interface Why {
  /** What waits, or stands empty. */
  what: string;
  /** The one thing that binds, in words a person reads. */
  why: string;
  /** How many wait for this. */
  count: number;
}
