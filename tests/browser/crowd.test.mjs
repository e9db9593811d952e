// Ten thousand calls in flight: the page stays smooth, because the scheduler works beside it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { playground } from "./harness.mjs";

const kit = playground();
const SECONDS = 10;
/** Longer tasks of the main thread can be felt, in ms. */
const LONGEST_TASK_MS = 50;
const LEAST_FRAMES_PER_SECOND = 55;

test("with 10^4 calls in flight no task of the main thread is long, and frames come at full rate", () =>
  kit.withPage(async (playground, page) => {
    await playground.choose("crowd");
    await playground.setSpeed(0);
    await playground.play.click();
    await page.waitForFunction(() => Number(document.querySelector('#stage [data-figure="in_flight"]').dataset.value) >= 9_000, undefined, { timeout: 60_000 });
    const { tasks, frames, ms, least } = await page.evaluate(async (seconds) => {
      const tasks = [];
      new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ type: "longtask" });
      const begin = performance.now();
      let frames = 0;
      let least = Infinity;
      await new Promise((resolve) => {
        const tick = () => {
          frames += 1;
          least = Math.min(least, Number(document.querySelector('#stage [data-figure="in_flight"]').dataset.value));
          if (performance.now() - begin >= seconds * 1000) resolve(undefined);
          else requestAnimationFrame(tick);
        };
        requestAnimationFrame(tick);
      });
      return { tasks, frames, ms: performance.now() - begin, least };
    }, SECONDS);
    const rate = frames / (ms / 1000);
    console.log(`${rate.toFixed(1)} frames a second, ${tasks.length} long tasks ${tasks.map(Math.round)}, at least ${least} calls in flight`);
    assert.equal(await playground.phase(), "Running", "it ran all the time");
    assert.deepEqual(tasks.filter((duration) => duration > LONGEST_TASK_MS), []);
    assert.ok(rate >= LEAST_FRAMES_PER_SECOND, `${rate} frames a second`);
  }));
