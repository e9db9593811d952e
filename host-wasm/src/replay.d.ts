/** What a decision log came to when it was told again. */
export interface ReplayedDecisions {
  /** Commands that were told. */
  entries: number;
  /** The digest of the scheduler's decisions: 16 hex digits. */
  run: string;
  /** The digest of request admission's. */
  requests: string;
  /** Whether both are those of the recorded run; `null` if the log was cut short. */
  equal: boolean | null;
}
