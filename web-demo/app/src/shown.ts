// What a picture shows of a sample with very many columns and groups: as many as a person can look at. The
// rest never leaves the worker, so that a wide table costs the page no more than a narrow one.
import type { GroupSample, PlaygroundSample } from "./pkg/tidegate_playground.js";

/** Columns that are shown at most, the first ones. */
export const MOST_COLUMNS = 64;
/** Groups that are shown at most, those with the most waiting. */
export const MOST_GROUPS = 48;

/** Which groups a sample holds, where they are too many. */
export interface Only {
  /** Their indices, in order. */
  groups: number[];
  /** Those left out, how many, and their sums. */
  others: { groups: number, queued: number, running: number };
}

/** `only` is there if groups were left out */
export type ShownSample = PlaygroundSample & { only?: Only };

/**
 * The part of a sample that is shown.
 * @param held groups that are to be shown whatever waits, in order
 */
export function shownPart(sample: PlaygroundSample, held?: readonly number[]): ShownSample {
  const { columns, groups } = sample;
  if (columns.length > MOST_COLUMNS) sample = { ...sample, columns: columns.slice(0, MOST_COLUMNS) };
  if (groups.length <= MOST_GROUPS) return sample;
  const shown = held?.every((index) => index < groups.length) ? [...held] : mostWaiting(groups);
  const others = { groups: groups.length - shown.length, queued: 0, running: 0 };
  const isShown = new Set(shown);
  groups.forEach((group, index) => {
    if (isShown.has(index)) return;
    others.queued += group.queued;
    others.running += group.running;
  });
  return { ...sample, groups: shown.map((index) => groups[index] as GroupSample), only: { groups: shown, others } };
}

/** The groups with the most waiting, in order. */
function mostWaiting(groups: readonly GroupSample[]) {
  const waiting = groups.map((_, index) => index).sort((one, other) => queued(groups[other]) - queued(groups[one]) || one - other);
  return waiting.slice(0, MOST_GROUPS).sort((one, other) => one - other);
}

const queued = (group: GroupSample | undefined) => group?.queued ?? 0;
