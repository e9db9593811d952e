// The playground in a real headless Chromium, and its figures beside those of the core run in this process.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { ARTIFACTS, exportSite, loadCore, outputOf, startBrowser, startServer } from "./demo.mjs";
import { PlaygroundPage } from "./playground-page.mjs";

let server;
let browser;
let core;

before(async () => {
  await mkdir(ARTIFACTS, { recursive: true });
  server = await startServer();
  core = await loadCore(server.url);
  browser = await startBrowser();
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

/** Opens the page for one test; it must have run without a complaint in the end. */
async function withPage(use, options) {
  const playground = await PlaygroundPage.open(browser, server.url, options);
  await use(playground, playground.page);
  await playground.close();
}

/** The core's own run of a scenario, up to an instant in nanoseconds. */
function replay(scenario, seed, until) {
  const run = new core.Playground(scenario, seed);
  while (!run.advanceTo(until / 1e6, 10_000));
  return run;
}

/** The part of the core's sample that the page shows. */
function shown({ at, queue_depth, running, rows_done, rows_dropped, rows_total, providers }) {
  return {
    at,
    queue_depth,
    running,
    rows_done,
    rows_dropped,
    rows_total,
    providers: providers.map(({ name, in_flight, limit, capacity, waiting, refused }) => ({ name, in_flight, limit, capacity, waiting, refused })),
  };
}

/** Every scenario with its length in virtual milliseconds and its number of providers, the shortest first. */
function byLength() {
  const runs = core.scenarios().map(({ name }) => {
    const run = replay(name, 1, 24 * 3600e9);
    return { name, ms: run.now(), providers: run.sample().providers.length };
  });
  return runs.sort((one, other) => one.ms - other.ms);
}


const first = () => core.scenarios()[0].name;

test("the page offers every scenario of the core, and its controls have names", () =>
  withPage(async (playground, page) => {
    const offered = await page.getByRole("option").evaluateAll((options) => options.map((option) => [option.value, option.textContent]));
    assert.deepEqual(offered, core.scenarios().map(({ name, title }) => [name, title]));
    assert.equal(await page.locator("#description").textContent(), core.scenarios()[0].description);
    assert.equal(await playground.phase(), "Ready");
    for (const [role, name] of [
      ["combobox", "Scenario"],
      ["spinbutton", "Seed"],
      ["button", "Play"],
      ["button", "Reset"],
      ["slider", "Speed"],
      ["progressbar", "Rows done"],
    ]) {
      assert.equal(await page.getByRole(role, { name, exact: true }).count(), 1, `one ${role} called ${name}`);
    }
    for (const { name } of replay(first(), 1, 0).sample().providers) {
      assert.equal(await page.getByRole("slider", { name: `True capacity of ${name}` }).count(), 1);
      assert.equal(await page.getByRole("img", { name: new RegExp(`Tide chart of ${name}`) }).count(), 1);
    }
  }));

test("while it plays, rows, virtual time and the chart move", () =>
  withPage(async (playground, page) => {
    const provider = await page.locator("article.provider").first().getAttribute("data-provider");
    const dry = await playground.painted(provider, "--in-flight");
    await playground.play.click();
    await playground.until("rows-done", 1);
    const early = await playground.sample();
    await playground.until("rows-done", early.rows_done + 10);
    const late = await playground.sample();
    assert.ok(late.at > early.at, "virtual time goes on");
    assert.ok(late.running > 0, "workers run");
    const wet = await playground.painted(provider, "--in-flight");
    assert.ok(wet > dry + 50, `the water is drawn: ${dry} pixels before, ${wet} after`);
    assert.ok((await playground.painted(provider, "--limit")) > 50, "the limit is drawn");
    await page.locator(".chart").first().hover({ position: { x: 60, y: 120 } });
    await page.locator(".readout").first().filter({ hasText: /^at .* in flight .* limit .* capacity / }).waitFor();
  }));

test("a pause stops everything, and the figures are those of the core at that instant", () =>
  withPage(async (playground, page) => {
    await page.getByRole("spinbutton", { name: "Seed" }).fill("7");
    await playground.play.focus();
    await page.keyboard.press("Tab");
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press("Space");
    await playground.reaches("Running");
    await playground.until("rows-done", 25);
    await page.keyboard.press("Space");
    await playground.reaches("Paused");
    // The page says so at once; its last frame may still be on its way.
    await page.locator('#phase[data-shown="still"]').waitFor();
    const paused = await playground.sample();
    await page.waitForTimeout(400);
    assert.deepEqual(await playground.sample(), paused, "nothing moves");
    assert.deepEqual(paused, shown(replay(first(), 7, paused.at).sample()));
  }));

test("reset goes back to the start", () =>
  withPage(async (playground, page) => {
    await playground.setSpeed(2);
    await playground.play.click();
    await playground.until("rows-done", 5);
    await page.getByRole("button", { name: "Reset" }).click();
    await playground.reaches("Ready");
    await page.waitForFunction(() => document.getElementById("virtual-time").dataset.value === "0");
    assert.deepEqual(await playground.sample(), shown(new core.Playground(first(), 1).sample()));
  }));

test("another scenario starts afresh, and the speed slider sets how fast virtual time runs", () =>
  withPage(async (playground, page) => {
    const other = core.scenarios()[1];
    await playground.choose(other.name);
    await page.locator("#description").filter({ hasText: other.description }).waitFor();
    const names = replay(other.name, 1, 0).sample().providers.map(({ name }) => name);
    await page.waitForFunction((names) => names === [...document.querySelectorAll("article h2")].map((title) => title.textContent).join(), names.join());
    const paces = [];
    for (const exponent of [0, 1]) {
      await playground.setSpeed(exponent);
      if (exponent === 0) await playground.play.click();
      const [start, real] = [await playground.figure("virtual-time"), performance.now()];
      await page.waitForTimeout(1_000);
      paces.push(((await playground.figure("virtual-time")) - start) / 1e6 / (performance.now() - real));
    }
    const [slow, fast] = paces;
    assert.ok(slow > 0.6 && slow < 1.4, `at 1x, a second takes a second: ${slow}`);
    assert.ok(fast > 6 && fast < 14, `at 10x, it takes a tenth: ${fast}`);
  }));

test("a person can move the provider's capacity while it runs, and give it back", () =>
  withPage(async (playground, page) => {
    const capacity = async () => (await playground.sample()).providers[0].capacity;
    await playground.setSpeed(0);
    await playground.play.click();
    await playground.until("rows-done", 1);
    const own = await capacity();
    const tide = page.getByRole("slider", { name: /^True capacity of / }).first();
    await tide.focus();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    await page.locator(`article [data-figure="capacity"][data-value="${own - 2}"]`).first().waitFor();
    await tide.fill("1");
    await page.locator('article [data-figure="capacity"][data-value="1"]').first().waitFor();
    await page.getByRole("button", { name: "Give capacity back" }).first().click();
    await page.waitForFunction(() => document.querySelector('[data-figure="capacity"]').dataset.value !== "1");
  }));

test("at full speed a run ends, says so, and its digest is that of the core", () =>
  withPage(async (playground, page) => {
    const [{ name }] = byLength();
    await playground.choose(name);
    await playground.setSpeed(3);
    await playground.play.click();
    await playground.reaches("Finished");
    const result = page.getByRole("region", { name: "Result of the run" });
    await result.waitFor();
    const expected = replay(name, 1, 24 * 3600e9);
    assert.equal(await page.locator("#digest").textContent(), expected.digest());
    assert.deepEqual(await playground.sample(), shown(expected.sample()));
    const bar = page.getByRole("progressbar");
    assert.equal(await bar.getAttribute("aria-valuenow"), await bar.getAttribute("aria-valuemax"));
    await page.screenshot({ path: `${ARTIFACTS}playground-finished.png`, fullPage: true });
    await result.getByRole("button", { name: "Run again" }).click();
    await result.waitFor({ state: "hidden" });
    await playground.reaches("Finished");
  }));

const falling = () => byLength().find((one) => one.name === core.scenarios()[1].name);
const several = () => byLength().find((one) => one.providers > 1);
for (const [name, choice, options] of [
  ["light", falling, { colorScheme: "light" }],
  ["dark", several, { colorScheme: "dark" }],
  ["narrow", several, { colorScheme: "light", viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true }],
]) {
  test(`the page fits its window and is pictured: ${name}`, () =>
    withPage(async (playground, page) => {
      const scenario = choice();
      await playground.choose(scenario.name);
      await playground.setSpeed(1);
      await playground.play.click();
      await playground.until("virtual-time", 0.6 * scenario.ms * 1e6);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.equal(overflow, 0, "nothing sticks out sideways");
      await page.screenshot({ path: `${ARTIFACTS}playground-${name}.png`, fullPage: true });
    }, options));
}

test("every scenario decides the same in wasm as natively, to the last bit", async () => {
  const lines = core.scenarios().flatMap(({ name }) =>
    [1, 2, 3].map((seed) => `${name} ${seed} ${replay(name, seed, 24 * 3600e9).digest()}\n`),
  );
  assert.deepEqual(lines.join(""), await outputOf("digests"));
});

test("the exported page agrees with the generated types, and these say nothing is any", async () => {
  await exportSite(`${ARTIFACTS}site`);
  const here = fileURLToPath(new URL(".", import.meta.url));
  const compiler = `${here}node_modules/typescript/bin/tsc`;
  const checked = await promisify(execFile)(process.execPath, [compiler, "--project", here]).catch((failed) => failed);
  assert.deepEqual(checked.stdout.split("\n").slice(0, 20), [""], "the type checker is content");
  const types = await readFile(`${ARTIFACTS}site/pkg/tidegate_playground.d.ts`, "utf8");
  // What follows is the generated loader's own, not ours.
  const [ours] = types.split("export type InitInput");
  assert.doesNotMatch(ours.replace(/\/\*[^]*?\*\//g, ""), /\bany\b/);
});
