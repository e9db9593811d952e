/** A scenario that comes with the package. */
export interface ScenarioInfo {
  /** Which suite it belongs to. */
  suite: string;
  /** What a run is started with. */
  name: string;
  title: string;
  description: string;
}

/** Something that waits, and the one thing that keeps it. */
export interface Why {
  /** What waits, or stands empty. */
  what: string;
  /** The one thing that binds, in words a person reads. */
  why: string;
  /** How many wait for this. */
  count: number;
}
