// What `tidegate_playground.js` exports, ahead of the generated file.
export function completeScenario(scenario: Scenario): Scenario;
export function readScenario(toml: string): Scenario;
export function writeScenario(scenario: Scenario): string;
export class Playground {
  constructor(scenario: Scenario, seed: number);
  advanceTo(virtualMs: number, maxEvents: number): boolean;
  step(): boolean;
  seek(virtualMs: number): void;
  takenBack(fromMs?: number): void;
  change(what: Intervention): void;
  changes(): Change[];
  scenario(): Scenario;
  seed(): number;
  now(): number;
  steps(): number;
  nextEventMs(): number | undefined;
  isFinished(): boolean;
  report(): RunReport | undefined;
  explanation(): string | undefined;
  digest(): string;
  layout(): Layout;
  sample(): PlaygroundSample;
  why(about: About): Why[];
  telemetryLength(): number;
  readTelemetry(target: Float64Array): number;
  static telemetryStride(): number;
  static telemetryFields(): TelemetryField[];
  lanesLength(): number;
  /**
   * Five numbers a span: lane, startMs, endMs (NaN: open), column, kind (LaneKind). Returns how many spans.
   */
  readLanes(fromMs: number, target: Float64Array): number;
  results(): string;
  free(): void;
}
export class Exporter {
  constructor(kind: "trace" | "decisions", scenario: Scenario, seed: number, untilMs?: number);
  /** The next part of the text; undefined at its end. */
  next(maxEvents: number): string | undefined;
  /** The progress, 0 to 1. */
  share(): number;
  free(): void;
}
