/** What a run calls. None of them may throw; arrays are views of the module's memory, good until the callback returns. */
export interface PipelineCallbacks {
  begin(
    slot: number,
    generation: number,
    column: number,
    rowGroup: number,
    firstRow: number,
    rows: number,
    row: number,
    attempt: number,
  ): void;
  stop(slot: number, generation: number): void;
  step(step: number, rowGroup: number, firstRow: number, rows: number, live: Uint32Array, dropped: Uint32Array, unmade: Uint32Array): void;
  warn(group: string, retryable: number, window: number): void;
  event(kind: number, numbers: Float64Array): void;
  over(): void;
}
