// The first screen: three runs side by side on one provider, which play by themselves.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { ARTIFACTS, startBrowser, startServer } from "./demo.mjs";
import { painted } from "./painted.mjs";
import { PlaygroundPage } from "./playground-page.mjs";
import { whileItMoves } from "../patience.mjs";

const SIZES = { wide: { viewport: { width: 1440, height: 900 } }, narrow: { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true } };

let server;
let browser;

before(async () => {
  server = await startServer();
  browser = await startBrowser();
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

/** Opens the page without an address of a view. It must have run without a complaint in the end. */
async function withScreen(use, options = {}) {
  const context = await browser.newContext({ locale: "en-US", ...SIZES.wide, serviceWorkers: "block", ...options });
  const page = await context.newPage();
  const playground = new PlaygroundPage(page, server.url);
  // What the browser says of a service worker that is blocked is no complaint of the page.
  await page.goto(server.url);
  await use(page, playground);
  playground.complaints = playground.complaints.filter((one) => !one.includes("Service Worker"));
  await playground.close();
}

const phase = (page, name) => page.locator(`.watch[data-phase="${name}"]`).waitFor({ state: "attached" });
const at = (page) => page.locator(".watch").evaluate((one) => Number(one.dataset.at));
const contender = (page, name) => page.getByRole("region", { name, exact: true });
const figure = async (page, name, figure) => Number(await contender(page, name).locator(`[data-figure="${figure}"]`).getAttribute("data-value"));

async function toTheEnd(page, playground) {
  await phase(page, "playing");
  await playground.ownClock(20);
  await whileItMoves(() => phase(page, "finished"), () => at(page));
}

/** The refusals and the virtual time of each contender. */
async function results(page) {
  const names = ["Fixed cap", "AIMD", "tide"];
  return Promise.all(names.map(async (name) => ({ name, refused: await figure(page, name, "refused"), time: await figure(page, name, "time") })));
}

test("it plays by itself, in one worker, and says what there is to see", () =>
  withScreen(async (page) => {
    await page.getByRole("heading", { name: "A provider serves 12 calls at once and nobody told the client." }).waitFor();
    await phase(page, "playing");
    await page.waitForFunction(() => Number(document.querySelector(".watch").dataset.at) > 700);
    assert.equal(page.workers().length, 1);
    assert.ok((await figure(page, "Fixed cap", "refused")) > 0);
    for (const name of ["Fixed cap", "AIMD", "tide"]) assert.equal(await contender(page, name).getByRole("img").count(), 1);
  }));

test("the adaptive runs are refused less and are done sooner, and a second run comes out the same", () =>
  withScreen(async (page, playground) => {
    await toTheEnd(page, playground);
    const [fixed, aimd, tide] = await results(page);
    assert.ok(tide.time < aimd.time && aimd.time < fixed.time, JSON.stringify([fixed, aimd, tide]));
    assert.ok(tide.refused < aimd.refused && aimd.refused < fixed.refused / 10, JSON.stringify([fixed, aimd, tide]));
    await page.getByRole("status").filter({ hasText: /^All 400 requests are answered: by tide in .* with \d+ 429s, by AIMD in .* with \d+ 429s, and by Fixed cap in .* with [\d,]+ 429s\.\s*$/ }).waitFor();
    for (const { name } of [fixed, aimd, tide]) {
      await contender(page, name).getByRole("button", { name: "Follow one" }).click();
      assert.equal(await page.locator(".story").count(), 0, `${name} has no request left`);
    }
    await page.getByRole("button", { name: "Run again" }).click();
    await toTheEnd(page, playground);
    assert.deepEqual(await results(page), [fixed, aimd, tide]);
  }));

test("the result is shown beside the story of a request that was followed to its answer", () =>
  withScreen(async (page, playground) => {
    await phase(page, "playing");
    await page.getByText("tidegate's default: learns the capacity").waitFor();
    await page.locator(".story").filter({ hasText: /^A refused call \(429\) did no work/ }).waitFor();
    await page.waitForFunction(() => Number(document.querySelector(".watch").dataset.at) > 700);
    await page.getByRole("button", { name: "Follow one request of tide" }).click();
    await toTheEnd(page, playground);
    await page.locator(".verdict").filter({ hasText: /^All 400 requests are answered: / }).waitFor();
    await page.locator(".story").filter({ hasText: /^tide: this request / }).waitFor();
  }));

test("the chart says what its lines count", () =>
  withScreen(async (page, playground) => {
    await page.addInitScript(() => {
      window.written = new Set();
      const write = CanvasRenderingContext2D.prototype.fillText;
      CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {
        window.written.add(text);
        write.call(this, text, ...at);
      };
    });
    await page.reload();
    await playground.waits(() => window.written.has("Requests answered"));
  }));

test("one slider moves what the provider can take, for all three runs", () =>
  withScreen(async (page, playground) => {
    await phase(page, "playing");
    await page.getByRole("slider", { name: "The provider can take" }).fill("4");
    await page.getByRole("heading", { name: "A provider serves 4 calls at once and nobody told the client." }).waitFor();
    await toTheEnd(page, playground);
    const all = await results(page);
    // 400 calls of 0.6 s, 4 at once, take at least a minute.
    for (const { name, time } of all) assert.ok(time > 55_000, `${name}: ${time}`);
  }));

test("a request can be followed until it is answered, by a click on its dot or by keyboard", () =>
  withScreen(async (page) => {
    await phase(page, "playing");
    await page.waitForFunction(() => Number(document.querySelector(".watch").dataset.at) > 700);
    await page.getByRole("button", { name: "Pause" }).click();
    await phase(page, "paused");
    const story = page.locator(".story");
    await page.getByRole("button", { name: "Follow one request of Fixed cap" }).press("Enter");
    await story.filter({ hasText: /^Fixed cap: this request .* refused (once|\d+ times)\. / }).waitFor();
    const canvas = contender(page, "tide").getByRole("img");
    const { width, height } = await canvas.boundingBox();
    // The dots stand in a grid: one of these points is near one.
    for (let row = 0; row < 8; row += 1) {
      await canvas.click({ position: { x: 12 + 4 * ((0.56 * 0.68 * width) / 5), y: 26 + ((row + 0.5) * (height - 26)) / 8 } });
      if ((await story.textContent()).startsWith("tide:")) break;
    }
    await story.filter({ hasText: /^tide: this request (waits|is with the provider), for / }).waitFor();
    await page.getByRole("button", { name: "Play" }).click();
    await story.filter({ hasText: /^tide: this request was answered after / }).waitFor();
    await page.locator(".reason").waitFor({ state: "detached" });
  }));

test("a request that is followed comes with the reason that the core gives for its wait", () =>
  withScreen(async (page) => {
    await phase(page, "playing");
    await page.waitForFunction(() => Number(document.querySelector(".watch").dataset.at) > 700);
    await page.getByRole("button", { name: "Pause" }).click();
    await phase(page, "paused");
    for (const name of ["Fixed cap", "AIMD", "tide"]) {
      await page.getByRole("button", { name: `Follow one request of ${name}` }).click();
      await page.locator(".story").filter({ hasText: new RegExp(`^${name}: this request .*\\. (It waits for a call: .*|Its call (is in flight|fails or is refused).*)\\.$`) }).waitFor();
    }
  }));

test("it pauses while another view is in front, and the Space bar plays and pauses it", () =>
  withScreen(async (page, playground) => {
    await phase(page, "playing");
    await page.keyboard.press("Space");
    await phase(page, "paused");
    await page.keyboard.press("Space");
    await phase(page, "playing");
    await page.getByRole("tab", { name: "Explore" }).click();
    await playground.isUsable();
    await phase(page, "paused");
    assert.equal(await playground.phase(), "Ready");
    await page.getByRole("tab", { name: "Watch" }).click();
    await page.getByRole("button", { name: "Play" }).waitFor();
  }));

test("a person who wants no motion starts it", () =>
  withScreen(
    async (page) => {
      await phase(page, "paused");
      assert.equal(await at(page), 0);
      await page.getByRole("button", { name: "Play" }).click();
      await phase(page, "playing");
    },
    { reducedMotion: "reduce" },
  ));

test("the first Tab reaches the link that skips to the view", () =>
  withScreen(async (page) => {
    await phase(page, "playing");
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.id), "skip");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.id), "watch");
  }));

for (const [size, options] of Object.entries(SIZES)) {
  for (const colorScheme of ["light", "dark"]) {
    test(`sentence, slider, runs and chart are in one glance: ${size}, ${colorScheme}`, () =>
      withScreen(
        async (page) => {
          await phase(page, "playing");
          await page.waitForFunction(() => Number(document.querySelector(".watch").dataset.at) > 3_000);
          await page.getByRole("button", { name: "Pause" }).click();
          const { height, width } = page.viewportSize();
          const parts = [page.getByRole("heading", { level: 2 }), page.getByRole("slider", { name: "The provider can take" }), ...(await page.locator(".watch canvas").all()), page.locator(".words")];
          for (const part of parts) {
            const box = await part.boundingBox();
            assert.ok(box.y >= 0 && box.y + box.height <= height && box.x >= 0 && box.x + box.width <= width, `${await part.evaluate((one) => one.outerHTML.slice(0, 80))}: ${JSON.stringify(box)}`);
          }
          assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0, "nothing sticks out sideways");
          assert.ok((await painted(contender(page, "tide").getByRole("img"), "--tide")) > 200, "calls are drawn");
          await page.screenshot({ path: `${ARTIFACTS}playground-watch-${size}-${colorScheme}.png` });
        },
        { ...options, colorScheme },
      ));
  }
}
