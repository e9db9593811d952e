// The dashboard by itself in a real headless Chromium, fed with views made up in `dashboard-fixture`: figures, clicks, keys,
// colours, and what 10^4 tasks in flight cost.
import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { after, before, test } from "node:test";
import { channels, contrast, distance } from "./colours.mjs";
import { assertReadable } from "./contrast.mjs";
import { ARTIFACTS, startBrowser } from "./demo.mjs";
import { painted } from "./painted.mjs";
import { startDashboardSite } from "./dashboard-site.mjs";
import { CROWD, MOST, openDashboard } from "./dashboard-page.mjs";
import { countByFrame, workDuring } from "./work.mjs";

let site;
let browser;

before(async () => {
  await mkdir(ARTIFACTS, { recursive: true });
  site = await startDashboardSite();
  browser = await startBrowser();
});

after(async () => {
  await browser?.close();
  await site?.stop();
});

/** Opens the fixture for one test; it must have run without a complaint in the end. */
async function withDashboard(size, use, options) {
  const { page, complaints } = await openDashboard(browser, site.url, size, options);
  await use(page);
  await page.context().close();
  assert.deepEqual(complaints, [], "the page ran without a complaint");
}

/** Shows the view of an instant, waits until every part has drawn it, and returns its sample. */
async function show(page, ms, changed = {}) {
  const sample = await page.evaluate(([ms, changed]) => window.fixture.show(ms, changed), [ms, changed]);
  await fresh(page);
  return sample;
}

const fresh = (page) => page.locator('.dashboard[data-fresh="true"]').waitFor();
const heard = (page) => page.evaluate(() => window.fixture.heard.splice(0));

/** The exact figures below elements that match, by name. */
const figures = (page, selector) =>
  page.locator(selector).evaluateAll((elements) =>
    elements.map((element) => Object.fromEntries([...element.querySelectorAll("[data-figure]")].map((figure) => [figure.dataset.figure, Number(figure.dataset.value)]))),
  );

const pick = (object, names) => Object.fromEntries(names.map((name) => [name, object[name]]));

/** Asserts that the page shows the figures of this sample, each of them, to the last digit. */
async function assertShown(page, sample, layout) {
  const [rows] = await figures(page, ".rows");
  assert.deepEqual(rows, pick(sample, ["rows_done", "rows_total", "rows_dropped"]));
  const providers = sample.providers.map((provider) => pick(provider, ["in_flight", "limit", "capacity", "waiting", "refused"]));
  assert.deepEqual(await figures(page, "article.provider"), providers);
  const nodes = sample.columns.map((column, index) =>
    pick(column, layout.columns[index].model === null ? ["ready", "local", "done", "failed", "dropped", "skipped"] : ["ready", "calling", "waiting", "done", "local", "failed", "dropped", "skipped"]),
  );
  assert.deepEqual(await figures(page, ".node"), nodes);
  // What has no limit is shown as 2^31 or more is: without a bound.
  const groups = sample.groups.map(({ weight, debt, running, limit, queued }) => ({ weight, debt, running, limit: limit ?? 2 ** 31, queued }));
  assert.deepEqual(await figures(page, ".group-row"), groups);
  const idle = sample.idle.map(({ busy, starved, frontier }) => {
    const whole = busy + starved + frontier;
    return { busy: busy / whole, starved: starved / whole, frontier: frontier / whole };
  });
  assert.deepEqual(await figures(page, ".idle-row"), idle);
}

const layoutOf = (page, size) => page.evaluate((size) => window.fixture.makeLayout(size), size);

for (const [name, size] of [
  ["an ordinary run", {}],
  ["one provider and one column", { providers: 1, columns: 1, lanes: 1 }],
  ["eight providers and sixty columns", MOST],
]) {
  test(`every part shows exactly the figures it is given: ${name}`, () =>
    withDashboard(size, async (page) => {
      const layout = await layoutOf(page, size);
      for (const ms of [0, 5_000, 20_000, 4_000]) {
        const sample = await show(page, ms);
        // The account may still be empty at the start.
        await assertShown(page, sample, layout);
        const bar = page.getByRole("progressbar", { name: "Rows done" });
        assert.deepEqual([await bar.getAttribute("aria-valuenow"), await bar.getAttribute("aria-valuemax")], [String(sample.rows_done), String(sample.rows_total)]);
      }
    }));
}

test("while no slot has been idle, one line says so in place of the split", () =>
  withDashboard({}, async (page) => {
    const [rows, line] = [page.locator(".idle-row").first(), page.getByText("No slot has been idle so far.")];
    const sample = await show(page, 4_000);
    assert.deepEqual([await rows.isVisible(), await line.isVisible()], [true, false]);
    const busy = sample.idle.map((one) => ({ ...one, busy: 1, starved: 0, frontier: 0, why: [] }));
    for (const idle of [busy, []]) {
      await show(page, 4_500, { sample: { ...sample, idle } });
      assert.deepEqual([await rows.isVisible(), await line.isVisible()], [false, true]);
    }
  }));

test("idle time is told in the words of the page, and says of what it is a part", () =>
  withDashboard({}, async (page) => {
    await show(page, 20_000);
    const [workers, provider] = await page.locator(".idle-row").allTextContents();
    assert.match(workers, /^workers .*busy.*free though work waits.*nothing to do/);
    assert.match(provider, / of its cap, not of what it can take .*the limit is below the cap \d/);
  }));

test("a hurried feed ends with the figures of its last view", () =>
  withDashboard(MOST, async (page) => {
    const layout = await layoutOf(page, MOST);
    const sample = await page.evaluate(() => {
      for (let ms = 1_000; ms < 3_000; ms += 100) window.fixture.show(ms);
      return window.fixture.show(3_000);
    });
    await fresh(page);
    await assertShown(page, sample, layout);
  }));

test("whatever waits can be clicked, and says what it is about", () =>
  withDashboard({}, async (page) => {
    await show(page, 20_000);
    const click = async (locator) => {
      await locator.click();
      return heard(page);
    };
    for (const [index, column] of ["topic", "question", "context", "answer"].entries()) {
      assert.deepEqual(await click(page.locator(`[data-column="${column}"]`)), [{ why: { column: index } }]);
    }
    assert.deepEqual(await click(page.getByRole("button", { name: /^harbour Why/ })), [{ why: { provider: 1 } }]);
    assert.deepEqual(await click(page.locator(".group-row").nth(2)), [{ why: { group: 2 } }]);
    assert.deepEqual(await click(page.locator(".idle-row").nth(0)), [{ why: { slots: 0 } }]);
    assert.deepEqual(await click(page.locator(".idle-row").nth(2)), [{ why: { provider: 1 } }]);
    assert.deepEqual(await click(page.getByRole("button", { name: "Which rows come next?" })), [{ why: "row_groups" }]);
    const lanes = page.getByRole("application", { name: /^Worker slots/ });
    const { height } = await lanes.boundingBox();
    await lanes.click({ position: { x: 300, y: ((height - 22) * 4.5) / 24 } });
    const [{ why, at }] = await heard(page);
    assert.deepEqual(why, { lane: 4 });
    assert.ok(at > 10_000 && at < 20_000, `the instant that was clicked: ${at}`);
  }));

test("the dashboard can be worked with the keyboard alone", () =>
  withDashboard({}, async (page) => {
    await show(page, 20_000);
    const names = new Set();
    await page.locator("main").evaluate(() => document.body.focus());
    for (let presses = 0; presses < 80; presses += 1) {
      await page.keyboard.press("Tab");
      const name = await page.evaluate(() => {
        const { activeElement: at } = document;
        return at === document.body ? "" : (at.getAttribute("aria-label") ?? at.dataset.column ?? at.textContent);
      });
      if (name === "") break;
      names.add(name);
    }
    for (const expected of ["True capacity of river", "Drop to zero", "Latest", "topic", "Worker slots over the latest virtual time"]) {
      assert.ok(names.has(expected), `Tab reaches ${expected} among ${[...names].join(", ")}`);
    }
    await page.locator('[data-column="answer"]').focus();
    await page.keyboard.press("Enter");
    await page.locator(".group-row").first().focus();
    await page.keyboard.press("Space");
    assert.deepEqual(await heard(page), [{ why: { column: 3 } }, { why: { group: 0 } }]);
    await page.getByRole("slider", { name: "True capacity of harbour" }).focus();
    await page.keyboard.press("ArrowUp");
    await page.keyboard.press("ArrowUp");
    const [first, second] = await heard(page);
    assert.equal(second.capacity, first.capacity + 1);
    assert.equal(second.provider, 1);
  }));

test("in the worker slots the arrow keys go from span to span, and Enter asks why", () =>
  withDashboard({}, async (page) => {
    await show(page, 20_000);
    const lanes = page.getByRole("application", { name: /^Worker slots/ });
    const said = page.locator(".lanes [role=status]");
    await lanes.focus();
    await page.keyboard.press("ArrowDown");
    await said.filter({ hasText: /^Slot 1:/ }).waitFor();
    await page.keyboard.press("ArrowDown");
    await said.filter({ hasText: /^Slot 2:/ }).waitFor();
    const seen = [];
    for (let presses = 0; presses < 4; presses += 1) {
      await page.keyboard.press("ArrowLeft");
      seen.push(await said.textContent());
    }
    assert.equal(new Set(seen).size, 4, `four spans: ${seen.join("; ")}`);
    for (const text of seen) assert.match(text, /^Slot 2: \w+, (in flight|waiting|working), from \d+\.\d s for \d+\.\d s/);
    await page.keyboard.press("End");
    await page.keyboard.press("Enter");
    assert.deepEqual((await heard(page)).map(({ why }) => why), [{ lane: 23 }]);
    assert.match(await said.textContent(), /^Slot 24:/);
    const spoken = await said.textContent();
    await show(page, 21_000);
    assert.equal(await said.textContent(), spoken, "what is spoken does not change by itself");
    await lanes.blur();
    await page.locator(".lanes .readout").filter({ hasText: /^Point at a span/ }).waitFor();
  }));

/** Four spans of the first slot: a task of three steps, then one that goes on. */
const STORY = [0, 15_000, 15_400, 1, 1, 0, 15_400, 15_405, 1, 2, 0, 15_405, 16_000, 1, 1, 0, 17_000, null, 2, 2];

async function showStory(page, ms, changed = {}) {
  await page.evaluate(
    ([spans, ms, changed]) => window.fixture.show(ms, { lanes: Float64Array.from(spans, (value) => value ?? Number.NaN), lanesCount: 4, ...changed }),
    [STORY, ms, changed],
  );
  await fresh(page);
}

test("a span of the past comes with the steps of its task, one that goes on is about the present", () =>
  withDashboard({}, async (page) => {
    await showStory(page, 20_000);
    const lanes = page.getByRole("application", { name: /^Worker slots/ });
    const { width } = await lanes.boundingBox();
    const clickAt = async (ms) => {
      await lanes.click({ position: { x: ((ms - 10_000) / 10_000) * width, y: 4 } });
      return heard(page);
    };
    const [past] = await clickAt(15_700);
    assert.deepEqual(past.why, { lane: 0 });
    assert.ok(Math.abs(past.at - 15_700) < 50);
    assert.deepEqual(past.steps, [
      "question: waiting from 15.0 s, for 0.4 s",
      "question: in flight from 15.4 s, for 0.0 s",
      "question: waiting from 15.4 s, for 0.5 s",
    ]);
    assert.deepEqual(await clickAt(18_000), [{ why: { lane: 0 } }]);
  }));

/** The stretch that the worker slots show, read from the keyboard's cursor at both ends of the picture. */
async function stretch(page) {
  const lanes = page.getByRole("application", { name: /^Worker slots/ });
  const { width } = await lanes.boundingBox();
  const readout = page.locator(".lanes .readout");
  const at = async (x) => {
    await lanes.hover({ position: { x, y: 300 } });
    return Number(/free at ([\d.]+) s/.exec(await readout.filter({ hasText: "free at" }).textContent())[1]);
  };
  return [await at(1), await at(width - 2)];
}

test("the worker slots zoom and pan by keys, wheel and mouse, and come back to the latest", () =>
  withDashboard({}, async (page) => {
    // Nothing is in the slot that is read.
    await showStory(page, 20_000);
    const lanes = page.getByRole("application", { name: /^Worker slots/ });
    const follow = page.locator(".lanes").getByRole("button", { name: "Follow" });
    assert.deepEqual(await stretch(page), [10, 19.9]);
    assert.equal(await follow.isDisabled(), true);
    await lanes.focus();
    await page.keyboard.press("+");
    const [from, to] = await stretch(page);
    assert.ok(to - from > 6 && to - from < 7, `two thirds of ten seconds: ${from} to ${to}`);
    await page.keyboard.press("0");
    assert.deepEqual(await stretch(page), [10, 19.9]);
    await page.keyboard.press("Shift+ArrowLeft");
    assert.deepEqual(await stretch(page), [7.5, 17.4]);
    assert.deepEqual(await heard(page), [{ past: 12_500 * 1.5 }], "more of the past is asked for once");
    await showStory(page, 20_050);
    assert.deepEqual(await stretch(page), [7.5, 17.4], "it does not follow the run while a person looks elsewhere");
    await follow.click();
    assert.deepEqual(await heard(page), [{ past: null }]);
    await showStory(page, 20_000);
    await lanes.hover({ position: { x: 300, y: 300 } });
    const scrolled = () => page.evaluate(() => scrollY);
    const before = await scrolled();
    await page.keyboard.down("Control");
    await page.mouse.wheel(0, -240);
    await page.keyboard.up("Control");
    await page.waitForFunction(() => !document.querySelector(".lanes .switch button:last-child").disabled);
    assert.equal(await scrolled(), before, "the page does not scroll meanwhile");
    const [left, right] = await stretch(page);
    assert.ok(right - left > 4.8 && right - left < 5.1 && left > 10, `half as much: ${left} to ${right}`);
    const box = await lanes.boundingBox();
    await page.mouse.move(box.x + 300, box.y + 300);
    await page.mouse.down();
    await page.mouse.move(box.x + 300 + box.width / 5, box.y + 300, { steps: 4 });
    await page.mouse.up();
    const [panned] = await stretch(page);
    assert.ok(Math.abs(panned - (left - 1)) < 0.15, `a fifth of the picture to the right: from ${left} to ${panned}`);
    assert.deepEqual((await heard(page)).filter(({ why }) => why), [], "a drag is no click");
  }));

test("two fingers zoom the worker slots, one moves them", () =>
  withDashboard(
    {},
    async (page) => {
      await showStory(page, 20_000);
      const lanes = page.getByRole("application", { name: /^Worker slots/ });
      await lanes.scrollIntoViewIfNeeded();
      const box = await lanes.boundingBox();
      const touch = await page.context().newCDPSession(page);
      const send = (type, ...places) => touch.send("Input.dispatchTouchEvent", { type, touchPoints: places.map((x, id) => ({ x: box.x + x, y: box.y + 60, id })) });
      const middle = box.width / 2;
      await send("touchStart", middle - 20, middle + 20);
      for (const half of [25, 30, 35, 40]) await send("touchMove", middle - half, middle + half);
      await send("touchEnd");
      const [from, to] = await stretch(page);
      assert.ok(to - from > 4.5 && to - from < 5.5, `half as much: ${from} to ${to}`);
      await send("touchStart", middle);
      for (const step of [1, 2, 3, 4]) await send("touchMove", middle + (step * box.width) / 20);
      await send("touchEnd");
      const [panned] = await stretch(page);
      assert.ok(Math.abs(panned - (from - 1)) < 0.3, `a fifth of the picture: from ${from} to ${panned}`);
    },
    { hasTouch: true },
  ));

test("the worker slots are told in words: how many there are, and what they do now", () =>
  withDashboard({}, async (page) => {
    const spans = [0, 0, 20_000, 1, 2, 1, 100, null, 2, 1, 2, 500, 20_000, 0, 0, 3, 0, 9_000, 1, 2];
    await page.evaluate((spans) => window.fixture.show(20_000, { lanes: Float64Array.from(spans, (value) => value ?? Number.NaN), lanesCount: 4 }), spans);
    await fresh(page);
    const lanes = page.getByRole("application", { name: /^Worker slots/ });
    const description = await lanes.evaluate((element) => document.getElementById(element.getAttribute("aria-describedby")).textContent);
    assert.equal(description, "24 slots: 1 in flight, 1 waiting, 1 working, 21 free, at 20.0 s.");
  }));

test("no more than 64 slots are shown, and the page says so", () =>
  withDashboard(MOST, async (page) => {
    await show(page, 20_000);
    assert.equal(await page.locator(".lanes-shown").textContent(), "64 of 10,000 slots shown");
  }));

test("of very many columns and groups the first are shown, and the page says so", () =>
  withDashboard({ columns: 4_096, providers: 30 }, async (page) => {
    await show(page, 20_000);
    assert.deepEqual(await page.locator(".dashboard-foot").filter({ hasText: /are shown/ }).allTextContents(), [
      "12 of 30 providers are shown.",
      "64 of 4,096 columns are shown.",
      "16 of 31 resources are shown.",
    ]);
  }));

test("a run that calls no model has no providers to show", () =>
  withDashboard({ providers: 0, columns: 1 }, async (page) => {
    await show(page, 1_000, { changes: [] });
    assert.ok(await page.getByRole("region", { name: "Providers" }).isHidden());
    assert.ok(await page.getByRole("region", { name: "Pipeline" }).isVisible());
  }));

test("trouble can be made for each provider, and its capacity given back", () =>
  withDashboard({}, async (page) => {
    await show(page, 20_000);
    const trouble = page.getByRole("group", { name: "Trouble for river" });
    await trouble.getByRole("button", { name: "Drop to zero" }).click();
    await trouble.getByRole("button", { name: "429 burst" }).click();
    await trouble.getByRole("button", { name: "Slow patch" }).click();
    await trouble.getByRole("button", { name: "Give capacity back" }).click();
    assert.deepEqual(await heard(page), [
      { change: { set: "capacity", model: "river", slots: 0 } },
      { change: { set: "refuse", model: "river", for_ms: 3_000 } },
      { change: { set: "slow", model: "river", factor: 4, for_ms: 10_000 } },
      { capacity: null, provider: 0 },
    ]);
    const other = page.getByRole("group", { name: "Trouble for harbour" });
    assert.ok(await other.getByRole("button", { name: "Give capacity back" }).isDisabled(), "it was never taken");
    assert.match(await page.locator("article.provider").nth(1).locator(".provider-status").textContent(), /slow patch, 4\.2 s left/);
  }));

test("the slider follows the capacity, and stays where a person has put it", () =>
  withDashboard({}, async (page) => {
    const sample = await show(page, 20_000);
    const tide = page.getByRole("slider", { name: "True capacity of river" });
    assert.equal(Number(await tide.inputValue()), sample.providers[0].capacity);
    assert.equal(await tide.getAttribute("aria-valuetext"), `river can take ${sample.providers[0].capacity} calls at once`);
    await tide.fill("3");
    await show(page, 20_010);
    assert.equal(await tide.inputValue(), "3", "the run has not taken the change over yet");
    await show(page, 20_020, { sample: { ...sample, providers: sample.providers.map((one) => ({ ...one, capacity: 7 })) } });
    assert.equal(await tide.inputValue(), "7", "a new capacity moves it");
  }));

test("the chart draws water, limit, capacity and refusals, and can follow the latest stretch", () =>
  withDashboard({}, async (page) => {
    await show(page, 20_000);
    for (const property of ["--in-flight", "--limit", "--capacity", "--refused"]) {
      assert.ok((await painted(page.locator(".chart canvas").first(), property)) > 40, `${property} is drawn`);
    }
    const picture = () => page.locator(".chart canvas").first().evaluate((canvas) => canvas.toDataURL());
    const whole = await picture();
    await page.getByRole("button", { name: "Latest" }).click();
    assert.equal(await page.getByRole("button", { name: "Latest" }).getAttribute("aria-pressed"), "true");
    assert.equal(await page.getByRole("button", { name: "Whole run" }).getAttribute("aria-pressed"), "false");
    assert.notEqual(await picture(), whole);
    await page.getByRole("button", { name: "Whole run" }).click();
    assert.equal(await picture(), whole);
    await page.locator(".chart").first().hover({ position: { x: 200, y: 120 } });
    await page.locator(".readout").first().filter({ hasText: /^at .* in flight .* limit .* can take / }).waitFor();
  }));

/** Keeps what canvases write. */
const keepWritten = () => {
  window.written = [];
  const { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
    window.written.push(text);
    return fillText.call(this, text, ...place);
  };
};

test("a burst of 256 refusals is one mark that says 256, and few refusals are ticks without a number", () =>
  withDashboard(
    {},
    async (page) => {
      const counts = async (refused) => {
        await page.evaluate(() => (window.written = []));
        await show(page, 20_000, { refused });
        const written = await page.evaluate(() => window.written);
        return written.filter((text) => ["9", "256", "1,000"].includes(text));
      };
      // The fixture has two providers, and both charts get the same.
      assert.deepEqual(await counts({ 400: 256 }), ["256", "256"]);
      assert.deepEqual(await counts(Object.fromEntries(Array.from({ length: 8 }, (_, nth) => [400 + nth, 32]))), ["256", "256"], "of neighbouring instants");
      assert.deepEqual(await counts({ 100: 256, 400: 1_000, 600: 9 }), ["1,000", "256", "1,000", "256"]);
    },
    { script: keepWritten },
  ));

test("a live change is marked on the charts it is about", () =>
  withDashboard({}, async (page) => {
    const pictures = () => page.locator(".chart canvas").evaluateAll((charts) => charts.map((canvas) => canvas.toDataURL()));
    await show(page, 20_000, { changes: [] });
    const [river, harbour] = await pictures();
    await show(page, 20_000, { changes: [{ at_ms: 8_000, set: "max_parallel", model: "river", calls: 12 }] });
    const [marked, spared] = await pictures();
    assert.notEqual(marked, river);
    assert.equal(spared, harbour);
    await show(page, 20_000, { changes: [{ at_ms: 8_000, set: "policy", policy: "strict_fair" }] });
    assert.notEqual((await pictures())[1], harbour, "a change that is about none is marked on all");
  }));

test("the changes of one drag are one mark, by real time, whatever the speed of the run", () =>
  withDashboard({}, async (page) => {
    const marked = await page.evaluate(() => {
      let now = 0;
      performance.now = () => now;
      const drags = new window.fixture.Drags();
      const changes = [[], []];
      const drag = (model, at_ms, slots, later, side) => {
        now += later;
        changes.forEach((all, one) => (side === undefined || side === one) && all.push({ at_ms, set: "capacity", model, slots }));
        drags.add({ set: "capacity", model, slots }, changes, side);
      };
      // A fast run: seconds pass between two movements of one drag.
      for (const [turn, slots] of [12, 11, 10, 9].entries()) drag("river", 5_000 * turn, slots, 50);
      // Another slider at the same time, and the first one again after a while, in a run that hardly moves.
      drag("harbour", 15_001, 3, 10);
      drag("river", 15_002, 8, 2_000);
      drag("river", 15_003, 7, 100, 1);
      return changes.map((all, side) => drags.marked(all, side).map(({ model, slots }) => `${model} ${slots}`));
    });
    assert.deepEqual(marked, [
      ["river 9", "harbour 3", "river 8"],
      ["river 9", "harbour 3", "river 7"],
    ]);
  }));

test("a change whose drag went on in a future that is gone is marked, and so is the last of a drag that no one saw", () =>
  withDashboard({}, async (page) => {
    const marked = await page.evaluate(() => {
      const drags = new window.fixture.Drags();
      const made = (at_ms, slots) => ({ at_ms, set: "capacity", model: "river", slots });
      const slots = (changes) => drags.marked(changes, 0).map((change) => change.slots);
      const [first, second, other] = [made(10_000, 12), made(11_000, 11), { at_ms: 10_500, set: "policy", policy: "strict_fair" }];
      drags.add(first, [[first]], undefined);
      drags.add(second, [[first, second]], undefined);
      return [
        slots([first, second]),
        slots([first, other]),
        // As a saved position brings them: their drags were in the time of another page.
        slots([made(20_000, 9), made(20_400, 8), made(20_900, 7), made(25_000, 6)]),
      ];
    });
    assert.deepEqual(marked, [[11], [12, undefined], [7, 6]]);
  }));

test("the nodes of a wide graph overlap nowhere, and every column comes after those it needs", () =>
  withDashboard(MOST, async (page) => {
    const layout = await layoutOf(page, MOST);
    await show(page, 20_000);
    const boxes = await page.locator(".node").evaluateAll((nodes) => nodes.map((node) => [node.offsetLeft, node.offsetTop, node.offsetWidth, node.offsetHeight]));
    assert.equal(boxes.length, 60);
    boxes.forEach(([left, top, width, height], index) => {
      for (const [otherLeft, otherTop] of boxes.slice(index + 1)) {
        assert.ok(Math.abs(left - otherLeft) >= width || Math.abs(top - otherTop) >= height, `node ${index} lies by itself`);
      }
      for (const needed of layout.columns[index].after) assert.ok(boxes[needed][0] + width <= left, `${index} is right of ${needed}`);
    });
  }));

for (const colorScheme of ["light", "dark"]) {
  test(`text can be read and columns told apart: ${colorScheme}`, () =>
    withDashboard(
      {},
      async (page) => {
        await show(page, 20_000);
        assert.ok((await assertReadable(page, ".dashboard")) > 100);
        const { surface, columns } = await page.evaluate(() => {
          const style = getComputedStyle(document.documentElement);
          const read = (name) => style.getPropertyValue(name).trim();
          return { surface: read("--surface"), columns: Array.from({ length: 8 }, (_, index) => read(`--column-${index}`)) };
        });
        const hues = columns.map(channels);
        hues.forEach((hue, index) => {
          assert.ok(contrast(hue, channels(surface)) >= 2.95, `${columns[index]} stands out from ${surface}`);
          for (const other of hues.slice(index + 1)) assert.ok(distance(hue, other) > 0.09, `${columns[index]} is ${distance(hue, other).toFixed(3)} from another`);
        });
        assert.equal(await page.evaluate(() => document.getAnimations().length), 0, "nothing moves by itself");
      },
      { colorScheme, reducedMotion: "reduce" },
    ));
}

test("the colour scheme can change while the page is open", () =>
  withDashboard({}, async (page) => {
    await show(page, 20_000);
    await page.emulateMedia({ colorScheme: "dark" });
    await page.evaluate(() => window.fixture.recolour());
    for (const [canvas, property] of [[".chart canvas", "--in-flight"], [".lanes canvas", "--column-1"]]) {
      await page.locator(canvas).first().scrollIntoViewIfNeeded();
      await show(page, 20_000);
      assert.ok((await painted(page.locator(canvas).first(), property)) > 40, `${property} is drawn anew`);
    }
  }));

for (const [name, size, options] of [
  ["light", {}, { colorScheme: "light" }],
  ["dark", {}, { colorScheme: "dark" }],
  ["most", MOST, { colorScheme: "light" }],
  ["narrow", { providers: 3, columns: 12 }, { colorScheme: "light", viewport: { width: 360, height: 800 }, hasTouch: true, isMobile: true }],
]) {
  test(`the dashboard fits its window and is pictured: ${name}`, () =>
    withDashboard(
      size,
      async (page) => {
        await show(page, 20_000);
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        assert.equal(overflow, 0, "nothing sticks out sideways");
        await page.screenshot({ path: `${ARTIFACTS}dashboard-${name}.png`, fullPage: true });
      },
      options,
    ));
}

for (const [part, top] of [["the charts", 0], ["the worker slots", 900]]) {
  test(`with 10^4 tasks in flight a frame draws a bounded picture, with ${part} in sight`, (t) =>
    withDashboard(
      CROWD,
      async (page) => {
        await show(page, 20_000);
        await page.evaluate((top) => scrollTo(0, top), top);
        const seen = await workDuring(browser, page, () => page.evaluate(() => window.fixture.feed(120)));
        const { painted } = await page.evaluate(() => counts.most);
        t.diagnostic(JSON.stringify({ painted, ...seen }));
        // Two pictures of 8192 spans each and their axes: one that comes into sight is painted at once, and again with the next view.
        assert.ok(painted < 20_000, `a frame does ${painted} operations on canvases`);
        assert.ok(seen.most.styled < 200, `a task computes the style of ${seen.most.styled} elements`);
        assert.ok(seen.most.laidOut < 500, `a task lays ${seen.most.laidOut} boxes out`);
        assert.ok(seen.layouts <= 4 * seen.frames, `${seen.layouts} layouts in ${seen.frames} frames`);
      },
      { script: countByFrame },
    ));
}

test("a dashboard that is taken away leaves nothing behind", () =>
  withDashboard({}, async (page) => {
    await show(page, 20_000);
    await page.evaluate(() => window.fixture.destroy());
    assert.equal(await page.locator(".dashboard").count(), 0);
    await page.evaluate(() => window.fixture.build({ providers: 4, columns: 3 }));
    await show(page, 1_000);
    assert.equal(await page.locator("article.provider").count(), 4);
  }));

test("the share of the capacity counts each stretch of the history once, the open one at its length", () =>
  withDashboard({}, async (page) => {
    const used = (times, inService, capacity, limits, accepted = 0) =>
      page.evaluate(
        ([times, inService, capacity, limits, accepted]) => {
          const provider = { refused: 0, accepted, idle: { starved_slot_ns: 0 } };
          const telemetry = new Float64Array([...times, ...inService, ...capacity]).buffer;
          const sample = { at: times.at(-1) * 1e6, rows_done: 0, rows_dropped: 0, providers: [provider] };
          const picture = { sample, telemetry, buckets: times.length };
          return window.fixture.figuresOf(picture, limits && { models: [{ provider: limits }] }, ["inService", "capacity"], times.length).used;
        },
        [times, inService, capacity, limits, accepted],
      );
    // Three buckets of 10 ms, and 4 ms of the fourth; a call beyond the capacity uses none of it.
    assert.equal(await used([0, 10, 20, 34], [4, 2, 9, 1], [8, 8, 8, 4]), (10 * (4 + 2 + 8) + 4 * 1) / (10 * 24 + 4 * 4));
    assert.equal(await used([0, 1.5], [4, 2], [8, 8]), (1 * 4 + 0.5 * 2) / (1.5 * 8), "a run that has just begun");
    assert.equal(await used([0.25], [3], [4]), 0.75, "all of it in the first bucket");
    assert.equal(await used([0, 10, 20, 34], [4, 2, 9, 1], [8, 2 ** 31, 8, 2 ** 31]), (10 * (4 + 8)) / (10 * 16), "where there is no bound, nothing is counted");
    assert.ok(Number.isNaN(await used([0], [0], [8])), "before the start");
    const [seconds, three, many] = [[0, 10_000, 20_000, 30_000], [3, 3, 3, 0], [32, 32, 32, 32]];
    const requests = { per_minute: 600, burst: 20 };
    assert.ok(Math.abs((await used(seconds, three, many, { requests }, 288)) - 288 / 320) < 1e-9, "of a rate that binds, what it let through");
    assert.equal(await used(seconds, many, many, { requests }, 32), 1, "of slots that bind, what there were");
    assert.ok(Math.abs((await used(seconds, three, many.map(() => 2 ** 31), { requests }, 160)) - 160 / 320) < 1e-9, "of a rate alone");
    assert.ok(Math.abs((await used(seconds, three, many, { requests: { per_minute: 600, window_ms: 6_000 } }, 180)) - 180 / 360) < 1e-9, "of a rate in windows");
    assert.ok(Number.isNaN(await used(seconds, three, many, { tokens: { per_minute: 600 } }, 288)), "tokens are not known");
  }));
