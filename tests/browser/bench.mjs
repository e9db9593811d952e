// What the page costs, in times: prints figures and asserts nothing. `node tests/browser/bench.mjs [NAME ...]`, where a name is a part
// of a row's. The figures hold for this machine and this hour; TIDEGATE_CPU_THROTTLE slows the page down.
import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { crowdInFlight, findGroups, runToTheEnd, turnTabs, twoVeryManyGroups, VERY_MANY, veryManyGroups } from "./acts.mjs";
import { ARTIFACTS, startBrowser, startServer } from "./demo.mjs";
import { PlaygroundPage } from "./playground-page.mjs";
import { CROWD, openDashboard } from "./dashboard-page.mjs";
import { startDashboardSite } from "./dashboard-site.mjs";
import { framesASecond, workDuring } from "./work.mjs";

const SECONDS = 5;
/** For a run that lasts 2.6 s at the lowest speed. */
const SHORT_SECONDS = 1.5;
const named = process.argv.slice(2);
await mkdir(ARTIFACTS, { recursive: true });
const [server, site, browser] = [await startServer(), await startDashboardSite(), await startBrowser()];

async function withPage(use) {
  const playground = await PlaygroundPage.open(browser, server.url);
  const row = await use(playground, playground.page);
  await playground.close();
  return row;
}

/** An empty page in a window of its own: the most frames that the machine has to give. */
async function withEmptyPage(use) {
  const context = await browser.newContext();
  const result = await use(await context.newPage());
  await context.close();
  return result;
}

const ms = (time) => `${time.toFixed(1)} ms`;
const ofTasks = ({ longest, busy }) => `longest task ${ms(longest)}, all ${ms(busy)} of a processor`;
const ofFrames = ({ longest, busy, frames, rate }) => `${rate.toFixed(1)} frames a second, ${ms(busy / frames)} of a processor each, longest task ${ms(longest)}`;

/**
 * The frames of a run that `begin` starts, beside those of an empty page after it, and in a second run how long tasks kept a
 * processor: to record a trace takes time of its own.
 */
const whilePlaying = async (begin, seconds) => {
  const during = (measure) =>
    withPage(async (playground, page) => {
      await begin(playground);
      const seen = await measure(page);
      assert.equal(await playground.phase(), "Running", "it plays to the end of the measurement");
      return seen;
    });
  const { rate } = await during((page) => framesASecond(page, seconds));
  const empty = await withEmptyPage((page) => framesASecond(page, seconds));
  const traced = await during((page) => workDuring(browser, page, () => framesASecond(page, seconds)));
  return `${ofFrames({ ...traced, rate })}; an empty page has ${empty.rate.toFixed(1)} frames a second`;
};

const BENCHES = {
  "10^4 calls in flight": () => whilePlaying(crowdInFlight, SECONDS),
  "4096 groups, while it plays": () => whilePlaying(veryManyGroups, SHORT_SECONDS),
  "4096 groups, from start to end": () => withPage(async (playground, page) => ofTasks(await workDuring(browser, page, () => runToTheEnd(playground)))),
  "4096 groups, search": () =>
    withPage(async (playground, page) => {
      await playground.choose(VERY_MANY);
      return ofTasks(await workDuring(browser, page, () => findGroups(playground, page)));
    }),
  "two runs of 4096 groups, there and back": () =>
    withPage(async (playground, page) => {
      await twoVeryManyGroups(playground, page);
      const turns = [];
      for (let turn = 0; turn < 3; turn += 1) turns.push(await workDuring(browser, page, () => turnTabs(playground, page)));
      return turns.map(ofTasks).join("; ");
    }),
  "pace of virtual time": () =>
    withPage(async (playground, page) => {
      const paces = [];
      for (const exponent of [-1, 0, 1]) {
        await playground.setSpeed(exponent);
        if (exponent === -1) await playground.play.click();
        const [start, real] = [await playground.figure("virtual-time"), performance.now()];
        await page.waitForTimeout(1_000);
        paces.push(((await playground.figure("virtual-time")) - start) / 1e6 / (performance.now() - real));
      }
      return paces.map((pace, index) => `at ${10 ** (index - 1)}x it is ${pace.toFixed(2)}x`).join(", ");
    }),
  ...Object.fromEntries(
    [["the charts", 0], ["the worker slots", 900]].map(([part, top]) => [
      `dashboard by itself, 10^4 tasks, ${part} in sight`,
      async () => {
        const { page } = await openDashboard(browser, site.url, CROWD);
        await page.evaluate((top) => scrollTo(0, top), top);
        await page.evaluate(() => window.fixture.feed(30));
        const { perSecond, ...seen } = await workDuring(browser, page, () => page.evaluate(() => window.fixture.feed(180)));
        await page.context().close();
        return ofFrames({ ...seen, rate: perSecond });
      },
    ]),
  ),
};

try {
  for (const [name, bench] of Object.entries(BENCHES)) {
    if (named.length === 0 || named.some((part) => name.includes(part))) console.log(`${name}: ${await bench()}`);
  }
} finally {
  await browser.close();
  await site.stop();
  await server.stop();
}
