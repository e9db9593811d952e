// Very many calls and very many groups: the page stays smooth, because the scheduler works beside it and sends what can be
// looked at. What the page does is measured in time of a processor, and its frames against those of an empty page in the same
// seconds: whatever else the machine does holds both up.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ARTIFACTS } from "./demo.mjs";
import { playground } from "./harness.mjs";
import { tasksDuring } from "./tasks.mjs";

const kit = playground();
const SECONDS = 5;
/** Longer tasks of the main thread can be felt, in ms. */
const LONGEST_TASK_MS = 50;
/** What a frame may take of the main thread, in ms: a display that shows 60 of them a second gives it 16. */
const FRAME_MS = 10;
/** The page's frames, as a share of those that an empty page gets: the scheduler beside it needs a processor, too. */
const LEAST_SHARE = 0.75;

/** Counts frames for a while, and finds the least of a figure, where there is one. */
const watch = (page, selector = "") =>
  page.evaluate(
    async ([seconds, selector]) => {
      const figure = selector ? document.querySelector(selector) : undefined;
      const begin = performance.now();
      let frames = 0;
      let least = Infinity;
      await new Promise((resolve) => {
        const tick = () => {
          frames += 1;
          if (figure) least = Math.min(least, Number(figure.dataset.value));
          if (performance.now() - begin >= seconds * 1000) resolve(undefined);
          else requestAnimationFrame(tick);
        };
        requestAnimationFrame(tick);
      });
      return { rate: frames / ((performance.now() - begin) / 1000), frames, least };
    },
    [SECONDS, selector],
  );

/** An empty page in a window of its own. */
async function withEmptyPage(use) {
  const context = await kit.browser.newContext();
  try {
    return await use(await context.newPage());
  } finally {
    await context.close();
  }
}

test("with 10^4 calls in flight no task of the main thread is long, and frames come at full rate", (t) =>
  kit.withPage(async (playground, page) => {
    await playground.choose("crowd");
    await playground.setSpeed(0);
    await playground.play.click();
    const inFlight = '#stage [data-figure="in_flight"]';
    await page.waitForFunction((inFlight) => Number(document.querySelector(inFlight).dataset.value) >= 9_000, inFlight, { timeout: 60_000 });
    const [seen, empty] = await withEmptyPage((other) => Promise.all([tasksDuring(kit.browser, page, () => watch(page, inFlight)), watch(other)]));
    assert.equal(await playground.phase(), "Running", "it ran all the time");
    const { rate, frames, least, longest, busy } = seen;
    t.diagnostic(
      `${rate.toFixed(1)} frames a second (an empty page: ${empty.rate.toFixed(1)}), ${(busy / frames).toFixed(1)} ms of a processor each, ` +
        `longest task ${longest.toFixed(1)} ms; at least ${least} calls in flight`,
    );
    assert.ok(least >= 9_000, `${least} calls in flight`);
    assert.ok(longest <= LONGEST_TASK_MS, `a task of ${longest} ms`);
    assert.ok(busy / frames <= FRAME_MS, `${busy / frames} ms a frame`);
    assert.ok(rate >= LEAST_SHARE * empty.rate, `${rate} frames a second, an empty page has ${empty.rate}`);
  }));

test("of 4096 groups those with the most waiting are shown, the others as a sum, and no task is long", (t) =>
  kit.withPage(async (playground, page) => {
    const name = "very-many/fairness-groups";
    const { longest } = await tasksDuring(kit.browser, page, async () => {
      await playground.choose(name);
      await playground.setSpeed(-1);
      await playground.play.click();
      await playground.reaches("Finished");
    });
    t.diagnostic(`longest task ${longest.toFixed(1)} ms of a processor`);
    assert.ok(longest <= LONGEST_TASK_MS, `a task of ${longest} ms`);
    assert.equal(await page.locator("#digest").textContent(), kit.replay(name).digest());
    await playground.seek.fill("60");
    await page.waitForFunction(() => Number(document.querySelector("#virtual-time").dataset.value) <= 60e6);
    await playground.stands();
    await playground.sample();
    const { groups } = kit.replay(name, 1, (await playground.figure("virtual-time")) / 1e6).sample();
    assert.equal(groups.length, 4096);
    assert.ok(groups.filter(({ queued }) => queued > 0).length > 48, "more groups wait than are shown");
    const rows = page.locator("#stage .group-row");
    const shown = await rows.evaluateAll((all) =>
      all.map((row) => [row.querySelector(".group-name").textContent, ...["queued", "running", "weight"].map((name) => Number(row.querySelector(`[data-figure=${name}]`).dataset.value))]),
    );
    const expected = groups
      .map((group, index) => ({ ...group, index }))
      .sort((one, other) => other.queued - one.queued || one.index - other.index)
      .slice(0, 48)
      .sort((one, other) => one.index - other.index);
    assert.deepEqual(shown, expected.map(({ name, queued, running, weight }) => [name, queued, running, weight]));
    const sum = (field) => groups.reduce((all, group) => all + group[field], 0) - expected.reduce((all, group) => all + group[field], 0);
    const others = `The 4,048 others: ${sum("running").toLocaleString("en")} running, ${sum("queued").toLocaleString("en")} queued.`;
    await page.locator(".queues .stage-foot").filter({ hasText: others }).waitFor();
    await rows.nth(20).click();
    await page.locator("#why-title").filter({ hasText: expected[20].name }).waitFor();
  }));

test("while a person is at the list of very many groups each row stays the group it is", () =>
  kit.withPage(async (playground, page) => {
    await playground.choose("very-many/fairness-groups");
    await playground.setSpeed(-1.5);
    const rows = page.locator("#stage .group-row");
    const foot = page.locator(".queues .stage-foot").last();
    /** The names that each row has had in a second, and how often its figures changed. */
    const changes = () =>
      rows.evaluateAll(async (all) => {
        const [names, figures] = [all.map(() => new Set()), new Set()];
        for (const begin = performance.now(); performance.now() - begin < 1_000; ) {
          await new Promise((resolve) => requestAnimationFrame(resolve));
          all.forEach((row, index) => names[index].add(row.title));
          figures.add(all.map((row) => row.querySelector("[data-figure=queued]").dataset.value).join());
        }
        return { names: Math.max(...names.map(({ size }) => size)), figures: figures.size };
      });
    await playground.play.click();
    await playground.until("queue-depth", 1_000);
    assert.ok((await changes()).names > 1, "rows change while nobody is there");
    await rows.nth(20).focus();
    const focused = await changes();
    assert.equal(focused.names, 1, "a row that has the focus, and those beside it, keep their groups");
    assert.ok(focused.figures > 1, "the figures go on");
    await foot.filter({ hasText: "groups stay while you are here." }).waitFor();
    await rows.nth(20).hover();
    await page.evaluate(() => document.activeElement.blur());
    assert.equal((await changes()).names, 1, "so does one under the pointer");
    const title = await rows.nth(20).getAttribute("title");
    await rows.nth(20).click();
    await page.locator("#why-title").filter({ hasText: title.replace(": why?", "") }).waitFor();
    await playground.play.click();
    await playground.play.focus();
    await page.mouse.move(0, 0);
    await foot.filter({ hasText: "groups with the most waiting are shown." }).waitFor();
  }));

test("the weight of any of 4096 groups can be set, by a part of its name, and no task is long", (t) =>
  kit.withPage(async (playground, page) => {
    await playground.choose("very-many/fairness-groups");
    const hands = page.locator("#hands");
    const search = hands.getByRole("textbox", { name: "Groups to show" });
    const state = hands.getByRole("status");
    const shown = () => hands.locator("input[data-group]").evaluateAll((all) => all.map((input) => input.dataset.group));
    await state.filter({ hasText: /^48 of 4,096 groups are shown\.$/ }).waitFor();
    const names = kit.replay("very-many/fairness-groups", 1, 0).sample().groups.map(({ name }) => name);
    assert.deepEqual(await shown(), names.slice(0, 48));
    const called = (part) => names.filter((name) => name.includes(part)).length;
    assert.ok(called("c40") > 48);
    await search.focus();
    const { longest } = await tasksDuring(kit.browser, page, async () => {
      await page.keyboard.type("C40");
      await state.filter({ hasText: `48 of ${called("c40")} groups called so are shown.` }).waitFor();
      await page.keyboard.type("01");
      await state.filter({ hasText: /^Groups called so: 1\.$/ }).waitFor();
      for (let letter = 0; letter < 5; letter += 1) await page.keyboard.press("Backspace");
      await state.filter({ hasText: /^48 of 4,096 groups are shown\.$/ }).waitFor();
      await page.keyboard.type("c40 1");
    });
    t.diagnostic(`longest task ${longest.toFixed(1)} ms of a processor`);
    assert.ok(longest <= LONGEST_TASK_MS, `a task of ${longest} ms`);
    assert.deepEqual(await shown(), names.filter((name) => name.includes("c40") && name.includes("1")));
    await search.fill("c4001");
    await page.keyboard.press("Tab");
    const weight = hands.getByLabel("Weight of c4001", { exact: true });
    assert.ok(await weight.evaluate((input) => input === document.activeElement), "the next stop of the keyboard");
    await page.keyboard.press("Control+A");
    await page.keyboard.type("7");
    await page.keyboard.press("Enter");
    await playground.stands();
    await search.fill("none");
    await state.filter({ hasText: /^No group is called so\.$/ }).waitFor();
    assert.deepEqual(await shown(), []);
    await search.fill("c4001");
    assert.equal(await weight.inputValue(), "7");
    await search.fill("c40");
    await hands.screenshot({ path: `${ARTIFACTS}weights.png` });
    const { changes, at } = (await playground.linked()).setUp;
    assert.deepEqual(changes[0].map(({ set, column, weight }) => [set, column, weight]), [["weight", "c4001", 7]]);
    const { groups } = kit.replay({ ...kit.core.scenario("very-many/fairness-groups"), changes: changes[0] }, 1, at + 1).sample();
    assert.equal(groups.find(({ name }) => name === "c4001").weight, 7);
  }));

test("two runs of 4096 groups each come and go without a long task, and are not sent to the worker again", (t) =>
  kit.withPage(async (playground, page) => {
    const name = "very-many/fairness-groups";
    await playground.choose(name);
    await playground.tab("Compare");
    await page.getByRole("button", { name: "AIMD, Tide" }).click();
    await playground.stands();
    await page.locator('fieldset[data-side="1"]').getByLabel("Scenario", { exact: true }).selectOption(name);
    await playground.stands();
    await page.evaluate(() => {
      const { postMessage } = Worker.prototype;
      globalThis.sent = 0;
      Worker.prototype.postMessage = function (message, ...rest) {
        globalThis.sent = Math.max(globalThis.sent, JSON.stringify(message).length);
        return postMessage.call(this, message, ...rest);
      };
    });
    // Looking for a tab as people name it would be a long task by itself.
    const show = async (view, stages) => {
      await page.evaluate((view) => document.getElementById(`tab-${view}`).click(), view);
      await page.locator(`#${view} .stage`).nth(stages - 1).waitFor();
      await playground.stands();
    };
    // Now and then the browser paints two frames in one task.
    const turns = [];
    for (let turn = 0; turn < 3; turn += 1) {
      const { longest } = await tasksDuring(kit.browser, page, async () => {
        await show("stage", 1);
        await show("compare", 2);
      });
      turns.push(longest);
    }
    const [, middle] = turns.sort((one, other) => one - other);
    t.diagnostic(`longest tasks of three turns: ${turns.map((ms) => ms.toFixed(1)).join(", ")} ms of a processor`);
    assert.ok(middle <= LONGEST_TASK_MS, `a task of ${middle} ms in most turns`);
    assert.ok((await page.evaluate(() => globalThis.sent)) < 10_000, "what the worker has is called by its name");
    await playground.playBothTo(20);
    const shown = (figure) => page.locator(`#compare tr[data-figure="${figure}"] td`).evaluateAll((cells) => cells.slice(0, 2).map((cell) => Number(cell.dataset.value)));
    const base = kit.core.scenario(name);
    const times = await shown("time");
    const runs = ["aimd", "tide"].map((algorithm, side) => kit.replay({ ...base, models: base.models.map((model) => ({ ...model, algorithm: { name: algorithm } })) }, 1, times[side]));
    assert.deepEqual(await shown("rows"), runs.map((run) => run.sample().rows_done));
  }));
