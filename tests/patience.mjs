// How long a test waits. A limit here only ends a test that hangs: a slow machine reaches all of them.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

/** How long nothing at all may move before a wait has failed, in ms. */
export const PATIENCE_MS = 120_000;
/** Between two looks, in ms. */
const PAUSE_MS = 5;

/** Waits until `holds` says so of what `look` returns, and returns that.
 * @template T @param {() => T | Promise<T>} look @param {(seen: T) => boolean} [holds] */
export async function until(look, holds = Boolean) {
  for (let [before, since] = ["", 0]; ; await sleep(PAUSE_MS)) {
    const seen = await look();
    if (holds(seen)) return seen;
    const text = JSON.stringify(seen) ?? "nothing";
    if (text !== before) [before, since] = [text, performance.now()];
    assert.ok(performance.now() - since < PATIENCE_MS, `nothing moves any more: ${text}`);
  }
}

/** Waits until `happens` resolves, and starts over when it runs out of time, as long as what `watched` resolves to is another thing
 * than at the last try. @template T @param {() => Promise<T>} happens rejects after `PATIENCE_MS` @param {() => Promise<unknown>} watched */
export async function whileItMoves(happens, watched) {
  for (let before = await watched(); ; ) {
    try {
      return await happens();
    } catch (error) {
      if (error?.name !== "TimeoutError") throw error;
      const now = await watched();
      if (now === before) throw error;
      before = now;
    }
  }
}

/** Something that is held up until a test has looked: what `wait` returns resolves once `open` is called. */
export function gate() {
  let open = () => {};
  const opened = new Promise((resolve) => (open = () => resolve(undefined)));
  return { open, wait: () => opened };
}
