// Very many calls and very many groups: a frame of the page stays as small as with few, because the scheduler works beside it and
// sends what can be looked at. What a task touches and what a frame is sent is counted; how long it takes, `bench.mjs` prints.
import assert from "node:assert/strict";
import { test } from "node:test";
import { crowdInFlight, findGroups, runToTheEnd, turnTabs, twoVeryManyGroups, VERY_MANY } from "./acts.mjs";
import { ARTIFACTS } from "./demo.mjs";
import { playground } from "./harness.mjs";
import { countByFrame, countPictures, workDuring } from "./work.mjs";

const kit = playground();
/** How many groups the scenario has. A task that touches as many elements does something for each of them. */
const GROUPS = 4096;
/** How many pictures of a run are looked at. */
const PICTURES = 60;

/** Whatever goes on, a task touches a bounded part of the page. */
function assertBounded({ most }) {
  assert.ok(most.styled < GROUPS, `a task computes the style of ${most.styled} elements`);
  assert.ok(most.laidOut < GROUPS, `a task lays ${most.laidOut} boxes out`);
  assert.ok(most.layouts <= 8, `a task makes ${most.layouts} layouts`);
}

test("with 10^4 calls in flight a frame is one picture, of a bounded size, and touches a bounded part of the page", (t) =>
  kit.withPage(
    async (playground, page) => {
      await crowdInFlight(playground);
      // The crowd must not have been served while it is looked at.
      await playground.ownClock(1 / 8);
      const seen = await workDuring(kit.browser, page, () => countPictures(page, PICTURES));
      t.diagnostic(JSON.stringify(seen));
      assert.equal(await playground.phase(), "Running", "it ran all the time");
      const inFlight = Number(await page.locator('#explore [data-figure="in_flight"]').first().getAttribute("data-value"));
      assert.ok(inFlight >= 9_000, `${inFlight} calls in flight`);
      assertBounded(seen);
      assert.ok(seen.pictures <= 1, `${seen.pictures} pictures in a frame`);
      assert.ok(seen.numbers < 60_000, `${seen.numbers} numbers in a frame`);
      assert.ok(seen.painted < 20_000, `${seen.painted} operations on canvases in a frame`);
      assert.ok(seen.layouts <= 4 * seen.frames, `${seen.layouts} layouts in ${seen.frames} frames`);
    },
    { script: countByFrame },
  ));

test("of 4096 groups those with the most waiting are shown, the others as a sum, and no task touches as many elements", (t) =>
  kit.withPage(async (playground, page) => {
    const name = VERY_MANY;
    const seen = await workDuring(kit.browser, page, () => runToTheEnd(playground));
    t.diagnostic(JSON.stringify(seen));
    assertBounded(seen);
    assert.equal(await page.locator("#digest").textContent(), kit.replay(name).digest());
    await playground.seek.fill("60");
    await page.waitForFunction(() => Number(document.querySelector("#virtual-time").dataset.value) <= 60e6);
    await playground.stands();
    await playground.sample();
    const { groups } = kit.replay(name, 1, (await playground.figure("virtual-time")) / 1e6).sample();
    assert.equal(groups.length, 4096);
    assert.ok(groups.filter(({ queued }) => queued > 0).length > 48, "more groups wait than are shown");
    const rows = page.locator("#explore .group-row");
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
    await page.locator(".queues .dashboard-foot").filter({ hasText: others }).waitFor();
    await rows.nth(20).click();
    await page.locator("#explain-title").filter({ hasText: expected[20].name }).waitFor();
  }));

test("while a person is at the list of very many groups each row stays the group it is", () =>
  kit.withPage(async (playground, page) => {
    await runToTheEnd(playground);
    await playground.seek.fill("60");
    await playground.page.waitForFunction(() => Number(document.querySelector("#virtual-time").dataset.value) <= 60e6);
    await playground.stands();
    // The run must not end while it is looked at.
    await playground.ownClock(1 / 32);
    const rows = page.locator("#explore .group-row");
    const foot = page.locator(".queues .dashboard-foot").last();
    /** The most names that a row had while 4 virtual ms passed, and how many sums of the others were shown. Without a person, all rows
     * change in one ms. */
    const seen = () =>
      rows.evaluateAll(async (all) => {
        const now = () => Number(document.querySelector("#virtual-time").dataset.value);
        const [names, sums] = [all.map(() => new Set()), new Set()];
        for (const begin = now(); now() < begin + 4e6; ) {
          await new Promise(requestAnimationFrame);
          if (document.querySelector("#phase").textContent !== "Running") throw new Error("the run has ended");
          all.forEach((row, index) => names[index].add(row.title));
          sums.add([...document.querySelectorAll("#explore .queues .dashboard-foot")].at(-1).textContent);
        }
        return { names: Math.max(...names.map(({ size }) => size)), sums: sums.size };
      });
    const titles = await rows.evaluateAll((all) => all.map(({ title }) => title).join());
    await playground.play.click();
    // Rows change while nobody is there.
    await playground.waits((titles) => [...document.querySelectorAll("#explore .group-row")].map(({ title }) => title).join() !== titles, titles);
    await rows.nth(20).focus();
    await foot.filter({ hasText: "groups stay while you are here." }).waitFor();
    const focused = await seen();
    assert.equal(focused.names, 1, "a row that has the focus, and those beside it, keep their groups");
    assert.ok(focused.sums > 1, "the figures go on");
    await rows.nth(20).hover();
    await page.evaluate(() => document.activeElement.blur());
    assert.equal((await seen()).names, 1, "so does one under the pointer");
    const title = await rows.nth(20).getAttribute("title");
    await rows.nth(20).click();
    await page.locator("#explain-title").filter({ hasText: title.replace(": why?", "") }).waitFor();
    await playground.play.click();
    await playground.play.focus();
    await page.mouse.move(0, 0);
    await foot.filter({ hasText: "groups with the most waiting are shown." }).waitFor();
  }));

test("the weight of any of 4096 groups can be set, by a part of its name, and no task touches as many elements", (t) =>
  kit.withPage(async (playground, page) => {
    await playground.choose("very-many/fairness-groups");
    const hands = page.locator("#controls");
    const search = hands.getByRole("textbox", { name: "Groups to show" });
    const state = hands.getByRole("status");
    const shown = () => hands.locator("input[data-group]").evaluateAll((all) => all.map((input) => input.dataset.group));
    await state.filter({ hasText: /^48 of 4,096 groups are shown\.$/ }).waitFor();
    const names = kit.replay("very-many/fairness-groups", 1, 0).sample().groups.map(({ name }) => name);
    assert.deepEqual(await shown(), names.slice(0, 48));
    const called = (part) => names.filter((name) => name.includes(part)).length;
    assert.ok(called("c40") > 48);
    const seen = await workDuring(kit.browser, page, () => findGroups(playground, page));
    t.diagnostic(JSON.stringify(seen));
    assertBounded(seen);
    assert.equal(seen.said, `48 of ${called("c40")} groups called so are shown.`);
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

test("two runs of 4096 groups each come and go: no task touches as many elements, and they are not sent to the worker again", (t) =>
  kit.withPage(
    async (playground, page) => {
      const name = VERY_MANY;
      await twoVeryManyGroups(playground, page);
      await page.evaluate(() => counts.reset());
      const seen = await workDuring(kit.browser, page, () => turnTabs(playground, page));
      t.diagnostic(JSON.stringify(seen));
      assertBounded(seen);
      const sent = await page.evaluate(() => counts.sent);
      assert.ok(sent > 0 && sent < 10_000, `what the worker has is called by its name: ${sent} characters`);
      await playground.playBothTo(20);
      const shown = (figure) => page.locator(`#compare tr[data-figure="${figure}"] td`).evaluateAll((cells) => cells.slice(0, 2).map((cell) => Number(cell.dataset.value)));
      const base = kit.core.scenario(name);
      const times = await shown("time");
      const runs = ["aimd", "tide"].map((algorithm, side) => kit.replay({ ...base, models: base.models.map((model) => ({ ...model, algorithm: { name: algorithm } })) }, 1, times[side]));
      assert.deepEqual(await shown("rows"), runs.map((run) => run.sample().rows_done));
    },
    { script: countByFrame },
  ));
