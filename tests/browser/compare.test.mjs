// Compare: two runs on one seed, at the same instant, and the difference in the core's own numbers.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ARTIFACTS } from "./demo.mjs";
import { playground } from "./harness.mjs";
import { gate } from "../patience.mjs";

const kit = playground();

/** The table: by figure, left, right and difference. */
const table = (page) =>
  page.locator("#compare tbody tr").evaluateAll((rows) => Object.fromEntries(rows.map((row) => [row.dataset.figure, [...row.querySelectorAll("td")].map((cell) => Number(cell.dataset.value))])));

/** What the table should say of a run. */
function figures(run) {
  const { at, providers, rows_done, rows_dropped } = run.sample();
  const sum = (of) => providers.reduce((all, one) => all + of(one), 0);
  return {
    time: at / 1e6,
    rows: rows_done,
    goodput: rows_done / (at / 1e6 / 1000),
    refused: sum((one) => one.refused),
    starved: sum((one) => one.idle.starved_slot_ns) / 1e6,
    dropped: rows_dropped,
  };
}

async function agrees(page, left, right) {
  const shown = await table(page);
  const [one, other] = [figures(left), figures(right)];
  for (const [name, value] of Object.entries(one)) {
    assert.deepEqual(shown[name], [value, other[name], other[name] - value], name);
  }
  for (const used of shown.used.slice(0, 2)) assert.ok(used > 0 && used <= 1, `a share of the capacity: ${used}`);
}

test("two runs go on in lockstep, and the table says what the core counts", () =>
  kit.withPage(async (playground, page) => {
    await playground.compare("Fixed limit, AIMD", 8_000);
    const [left, right] = (await table(page)).time;
    assert.equal(left, right, "both are at the same instant");
    const base = kit.core.scenario(kit.first());
    const fixed = { ...base, models: base.models.map((model) => ({ ...model, algorithm: { name: "fixed", limit: 32 } })) };
    const aimd = { ...base, models: base.models.map((model) => ({ ...model, algorithm: { name: "aimd" } })) };
    await agrees(page, kit.replay(fixed, 1, left), kit.replay(aimd, 1, left));
    assert.match(await page.locator("#verdict").textContent(), /So far right is ahead by .* left meets .* more 429s/);
    assert.match(await page.locator(".half-title").first().textContent(), /a fixed limit of 32/);
  }));

test("the share of the capacity that is used is what the core has counted", () =>
  kit.withPage(async (playground, page) => {
    await playground.tab("Compare");
    // A limit below the capacity, which stays what it is: what is used is what the core has counted.
    await page.locator('fieldset[data-side="0"]').getByLabel("Limit", { exact: true }).selectOption("fixed");
    await playground.stands();
    await page.locator('fieldset[data-side="0"]').getByLabel("Fixed at", { exact: true }).fill("3");
    await page.locator('fieldset[data-side="0"]').getByLabel("Fixed at", { exact: true }).blur();
    await playground.stands();
    await playground.playBothTo(5_000);
    const { time, used: shares } = await table(page);
    const base = kit.core.scenario(kit.first());
    const run = kit.replay({ ...base, models: base.models.map((model) => ({ ...model, algorithm: { name: "fixed", limit: 3 } })) }, 1, time[0]);
    const { providers } = run.sample();
    assert.ok(providers.every(({ capacity }) => capacity < 2 ** 31), "every capacity has a bound");
    const [busy, borne] = providers.reduce(([busy, borne], { idle, capacity }) => [busy + idle.busy_slot_ns / 1e6, borne + capacity * time[0]], [0, 0]);
    assert.ok(Math.abs(shares[0] - busy / borne) < 1e-9, `${shares[0]} of the capacity is used, the core counted ${busy / borne}`);
    assert.equal(await page.locator("#compare .half .provider-used").first().textContent(), `${(100 * shares[0]).toFixed(1)} % of the capacity used`, "the chart says what the table says");
  }));

test("of a provider with a limit on calls a minute, the share of these calls is shown, beside the chart and in the table", () =>
  kit.withPage(async (playground, page) => {
    await playground.compare("Fixed limit, learned pace", 12_000);
    const { time, used } = await table(page);
    const { accepted } = kit.replay({ ...kit.core.scenario("rate-limit"), models: kit.core.scenario("rate-limit").models.map((model) => ({ ...model, algorithm: { name: "fixed", limit: 32 } })) }, 1, time[0]).sample().providers[0];
    assert.ok(Math.abs(used[0] - accepted / (20 + time[0] / 100)) < 1e-9, `${used[0]}: ${accepted} calls in ${time[0]} ms`);
    const beside = await page.locator("#compare .half .provider-used").allTextContents();
    assert.deepEqual(beside, used.slice(0, 2).map((share) => `${(100 * share).toFixed(1)} % of its calls a minute used`));
  }));

test("other scenarios beside each other, to the end: which is better is said in words", () =>
  kit.withPage(async (playground, page) => {
    await playground.tab("Compare");
    await page.locator('fieldset[data-side="0"]').getByLabel("Scenario", { exact: true }).selectOption("cold-storm");
    await playground.stands();
    await page.locator('fieldset[data-side="1"]').getByLabel("Scenario", { exact: true }).selectOption("cold-ramp");
    await playground.stands();
    await playground.setSpeed(4);
    await playground.play.click();
    await playground.reaches("Finished");
    await page.locator("#verdict").filter({ hasText: "is better" }).waitFor();
    // The comparison begins with AIMD beside Tide.
    const ramp = kit.core.scenario("cold-ramp");
    const models = ramp.models.map((model) => ({ ...model, algorithm: { name: "tide" } }));
    const [left, right] = [kit.replay("cold-storm"), kit.replay({ ...ramp, models })];
    await agrees(page, left, right);
    const better = left.now() < right.now() ? "Left" : "Right";
    assert.match(await page.locator("#verdict").textContent(), new RegExp(`^${better} is better`));
    assert.ok((await page.locator("td.better").count()) > 0);
    // One of the two ended earlier, and both charts have the same axes.
    const halves = page.locator("#compare .half");
    const tops = await halves.locator("input.capacity").evaluateAll((all) => all.map(({ max }) => Number(max)));
    assert.equal(tops[0], tops[1], "the same height is as many calls");
    const instants = [];
    for (const side of [0, 1]) {
      const over = halves.nth(side).locator(".u-over").first();
      await over.scrollIntoViewIfNeeded();
      const { width } = await over.boundingBox();
      await over.hover({ position: { x: Math.round(width * 0.4), y: 20 } });
      const said = await halves.nth(side).locator(".readout").filter({ hasText: /^at / }).first().textContent();
      instants.push(Number(/^at ([\d.]+) s/.exec(said)[1]));
    }
    assert.ok(Math.abs(left.now() / right.now() - 1) > 0.1, "they take differently long");
    assert.ok(Math.abs(instants[0] - instants[1]) < 0.01 * Math.max(left.now(), right.now()) / 1_000, `the same place is the same instant: ${instants}`);
    await halves.nth(0).getByRole("button", { name: "Latest" }).click();
    assert.equal(await halves.nth(1).getByRole("button", { name: "Latest" }).getAttribute("aria-pressed"), "true", "both show the same stretch");
  }));

/** Of each half, its queues: what a full bar stands for, as it says, and each row's figures beside the ends of its bars, as shares. */
const queues = (page) =>
  page.locator("#compare .half").evaluateAll((halves) =>
    halves.map((half) => {
      const numbers = [...half.querySelectorAll(".queues .dashboard-foot")].map(({ textContent }) => /^A full bar: ([\d,]+) running, ([\d,]+) queued\.$/.exec(textContent)).find(Boolean);
      const [slots, tasks] = numbers.slice(1).map((text) => Number(text.replaceAll(",", "")));
      const rows = [...half.querySelectorAll(".group-row")].map((row) => {
        const value = (name) => Number(row.querySelector(`[data-figure="${name}"]`).dataset.value);
        const ends = (stack) => row.querySelector(stack).style.backgroundSize.split(",").map((size) => parseFloat(size) / 100);
        // The first part of the upper bar ends at the limit, and leaves room for its mark.
        return { queued: value("queued"), within: Math.min(value("running"), value("limit")), queue: ends(".queue-stack")[0], slots: ends(".slots-stack")[0] };
      });
      return { slots, tasks, rows };
    }),
  );

test("equal bars of the queues mean equal numbers on both sides", () =>
  kit.withPage(async (playground, page) => {
    const pick = (side, scenario) => page.locator(`fieldset[data-side="${side}"]`).getByLabel("Scenario", { exact: true }).selectOption(scenario);
    await playground.tab("Compare");
    await pick(0, "two-harbours");
    await pick(1, "borrow-and-repay");
    await page.locator(".half-title").nth(1).filter({ hasText: "Borrow" }).waitFor();
    await playground.stands();
    // They are to be looked at soon after that instant, also where a page draws few frames.
    await playground.ownClock(1 / 32);
    await playground.playBothTo(2_000);
    await page.waitForFunction(() => [...document.querySelectorAll(".dashboard")].every((dashboard) => dashboard.dataset.fresh === "true"));
    const [left, right] = await queues(page);
    assert.deepEqual([left.slots, left.tasks], [right.slots, right.tasks], "a full bar is as many");
    const deepest = ({ rows }) => Math.max(...rows.map(({ queued }) => queued));
    assert.ok(deepest(left) > 10 && deepest(left) < 0.4 * right.tasks && deepest(right) > 0.4 * right.tasks, `each side for itself would have another scale: ${deepest(left)}, ${deepest(right)} of ${right.tasks}`);
    for (const { queued, within, queue, slots } of [left, right].flatMap(({ rows }) => rows)) {
      assert.ok(Math.abs(queue - queued / left.tasks) < 1e-3 && Math.abs(slots - within / left.slots) < 8e-3, `${queued} queued: ${queue}, ${within} running: ${slots}`);
    }
    await page.locator("#compare").screenshot({ path: `${ARTIFACTS}queues-beside-each-other.png` });
  }));

for (const look of ["light", "dark"]) {
  test(`on a ${look} phone the charts come first, and begin on the first screen`, () =>
    kit.withPage(
      async (playground, page) => {
        await playground.compare("Fixed limit, AIMD", 4_000);
        await page.evaluate(() => scrollTo(0, 0));
        await page.screenshot({ path: `${ARTIFACTS}compare-phone-${look}.png` });
        const tops = await page.evaluate(() =>
          [".u-over", ".rows", ".outcome", ".choose", ".forms"].map((part) => document.querySelector(`#compare ${part}`).getBoundingClientRect().top),
        );
        assert.deepEqual(tops, tops.toSorted((one, other) => one - other), "chart, rows, table, pairs, forms");
        assert.ok(tops[0] < 844, `the first chart begins at ${tops[0]}`);
      },
      { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true, colorScheme: look },
    ));
}

test("the table shows what differs, and names what is the same", () =>
  kit.withPage(async (playground, page) => {
    await playground.compare("No ramp, 10 s ramp", 4_000);
    const isShown = (figure) => page.locator(`#compare tr[data-figure="${figure}"]`).isVisible();
    assert.deepEqual([await isShown("refused"), await isShown("dropped"), await isShown("time")], [true, false, false]);
    assert.match(await page.locator(".outcome .remark").textContent(), /^The same on both sides: .*Rows dropped 0/);
    assert.match(await page.locator('#compare tr[data-figure="used"] td').last().textContent(), /^[+−]\d+\.\d points$/);
  }));

test("where two runs take as long, the wait of ready tasks is the core's, and decides", () =>
  kit.withPage(async (playground, page) => {
    await playground.tab("Compare");
    await page.getByRole("button", { name: "Strictly fair, borrowing" }).click();
    await playground.stands();
    await playground.setSpeed(3);
    await playground.play.click();
    await playground.reaches("Finished");
    await page.locator("#verdict").filter({ hasText: "Right is better: both take about as long, and there a ready task waits" }).waitFor();
    const base = kit.core.scenario("late-peer/bounded");
    const waitUnder = (policy) => JSON.parse(kit.replay({ ...base, policy }).results()).figures.downstream_ready_gap.mean_ns / 1e6;
    const expected = [waitUnder("strict_fair"), waitUnder({ bounded_borrow: {} })];
    assert.deepEqual((await table(page)).wait.slice(0, 2), expected);
    assert.ok(expected[0] > 2 * expected[1], `${expected} ms`);
  }));

test("with room, the forms stand beside the charts, which begin on the first screen", () =>
  kit.withPage(
    async (playground, page) => {
      await playground.compare("Fixed limit, AIMD", 4_000);
      await page.evaluate(() => scrollTo(0, 0));
      const box = (part) => page.locator(`#compare ${part}`).first().boundingBox();
      const [chart, other, table, forms] = await Promise.all([".half .provider-panels", ".half + .half .provider-panels", ".outcome", ".forms"].map(box));
      assert.ok(chart.x + chart.width <= other.x && other.x + other.width <= forms.x, "left, right, forms");
      assert.equal(chart.y, other.y);
      assert.ok(forms.y < chart.y + chart.height && chart.y + chart.height <= table.y, "the forms are beside the charts, the table is below");
      assert.ok(chart.y < 900, `the charts begin at ${chart.y}`);
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0, "nothing sticks out sideways");
      await page.screenshot({ path: `${ARTIFACTS}compare-wide.png` });
    },
    { viewport: { width: 1440, height: 900 } },
  ));

for (const [window, viewport] of [["wide", { width: 1440, height: 900 }], ["narrow", { width: 390, height: 844 }]]) {
  test(`the scenarios of a comparison are those of its sides, and the controls of a run stay in sight: ${window}`, () =>
    kit.withPage(
      async (playground, page) => {
        const picker = page.locator("#picker");
        assert.ok(await picker.isVisible(), "Explore has one");
        await playground.compare("No ramp, 10 s ramp", 1_000);
        assert.equal(await picker.isVisible(), false, "it would name another scenario than those that run");
        assert.equal(await page.locator("#description").isVisible(), false);
        const scenarios = page.getByRole("combobox", { name: "Scenario", exact: true });
        assert.deepEqual(await scenarios.evaluateAll((all) => all.map(({ value }) => value)), ["cold-storm", "cold-storm"]);
        const more = page.getByRole("button", { name: "Speed, seed" });
        if (await more.isVisible()) await more.click();
        for (const control of ["play", "step", "reset", "seek", "speed", "seed"]) assert.ok(await page.locator(`#${control}`).isVisible(), control);
        await page.locator("#seed").fill("5");
        await page.locator("#seed").blur();
        await playground.reaches("Ready");
        await playground.stands();
        assert.equal((await playground.linked()).setUp.seed, 5);
        await playground.tab("Explore");
        assert.equal(await page.locator("#picker input").inputValue(), kit.core.scenarios()[0].title);
      },
      { viewport },
    ));
}

test("a scenario of a side that is waited for is named", () =>
  kit.withPage(
    async (playground, page) => {
      await playground.tab("Compare");
      await playground.stands();
      const held = gate();
      await page.route("**/tidegate_scenario_texts-*.js", (route) => held.wait().then(() => route.continue()));
      await page.getByRole("button", { name: "No ramp, 10 s ramp" }).click();
      const { title } = kit.core.scenarios().find(({ name }) => name === "cold-storm");
      const about = page.locator("#compare .choose .lead");
      await about.filter({ hasText: `${title} is being loaded.` }).waitFor();
      held.open();
      await about.filter({ hasText: "The server opens one slot after another" }).waitFor();
    },
    { serviceWorkers: "block" },
  ));

test("what cannot be a fixed limit of a side does not stay in its field", () =>
  kit.withPage(async (playground, page) => {
    await playground.tab("Compare");
    await page.getByRole("button", { name: "Fixed limit, AIMD" }).click();
    await playground.stands();
    const field = page.locator('fieldset[data-side="0"]').getByLabel("Fixed at", { exact: true });
    for (const value of ["0", "", "1.5"]) {
      await field.fill(value);
      await field.blur();
      assert.equal(await field.inputValue(), "32", `after ${value || "nothing"}`);
    }
    await playground.settles();
    assert.equal((await playground.linked()).setUp.choices[0].fixed, 32);
  }));

test("every choice of a side reaches the run", () =>
  kit.withPage(async (playground, page) => {
    await playground.tab("Compare");
    const side = page.locator('fieldset[data-side="1"]');
    for (const [label, value] of [["Limit", "vegas"], ["Policy", "strict_fair"], ["Ramp", "5000"], ["Tasks that can call first", "no"], ["Yields while waiting", "no"]]) {
      await side.getByLabel(label, { exact: true }).selectOption(value);
      await playground.stands();
    }
    await playground.playBothTo(3_000);
    const base = kit.core.scenario(kit.first());
    const models = base.models.map((model) => ({ ...model, algorithm: { name: "vegas" }, request: { ...model.request, ramp_ms: 5_000 } }));
    const { time } = await table(page);
    await agrees(page, kit.replay(base, 1, time[0]), kit.replay({ ...base, models, policy: "strict_fair", advisory: false, yields: false }, 1, time[1]));
  }));

test("tabs may change faster than runs are there: each is found as it was left", () =>
  kit.withPage(async (playground, page) => {
    await playground.playTo(2_000);
    const left = await playground.sample();
    const dashboardsOf = (view) => page.locator(`#${view} [data-figure="rows_total"]`);
    await page.evaluate(() => ["compare", "explore", "compare"].forEach((view) => document.getElementById(`tab-${view}`).click()));
    await dashboardsOf("compare").nth(1).waitFor();
    await page.evaluate(() => ["explore", "compare", "explore"].forEach((view) => document.getElementById(`tab-${view}`).click()));
    await page.waitForFunction((at) => Number(document.getElementById("virtual-time").dataset.value) === at, left.at);
    await playground.stands();
    assert.deepEqual(await playground.sample(), left);
  }));

test("the single run is found as it was left", () =>
  kit.withPage(async (playground, page) => {
    await playground.playTo(2_000);
    const left = await playground.sample();
    await playground.tab("Compare");
    await playground.stands();
    await playground.setSpeed(1);
    await playground.play.click();
    await playground.waits(() => Number(document.querySelector('tr[data-figure="time"] td')?.dataset.value) > 1_000);
    await playground.tab("Explore");
    await page.waitForFunction((at) => Number(document.getElementById("virtual-time").dataset.value) === at, left.at);
    await playground.stands();
    assert.deepEqual(await playground.sample(), left);
  }));

test("every pair worth a look brings a scenario in which its sides differ, with the charts above the table", () =>
  kit.withPage(async (playground, page) => {
    await playground.tab("Compare");
    const pairs = page.getByRole("group", { name: "Pairs worth a look" }).getByRole("button");
    for (const pair of await pairs.all()) {
      await pair.click();
      await playground.stands();
      await playground.setSpeed(3);
      await playground.play.click();
      await playground.reaches("Finished");
      await page.locator("#verdict").filter({ hasText: /^(Left|Right) is better: / }).waitFor();
    }
    const [charts, table] = await Promise.all([".provider-panels", ".outcome"].map((part) => page.locator(`#compare ${part}`).first().boundingBox()));
    assert.ok(charts.y + charts.height <= table.y);
  }));
