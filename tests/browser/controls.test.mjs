// Controls on: every control changes the run while it goes on, the page shows what came of it, and Why answers.
import assert from "node:assert/strict";
import { test } from "node:test";
import { playground, shown } from "./harness.mjs";
import { linkTo } from "./playground-page.mjs";

const kit = playground();

/** The core's run with the changes that the page made. */
async function told(playground, seed = 1) {
  const { setUp } = await playground.linked();
  const written = typeof setUp.scenario === "string" ? kit.core.scenario(setUp.scenario) : setUp.scenario;
  const scenario = { ...written, changes: setUp.changes[0] };
  return { run: kit.replay(scenario, seed, setUp.at), changes: setUp.changes[0] };
}

test("limits, settings, caps, weights and the policy change while it runs, and the run is the core's", () => {
  // Virtual time goes on while controls are filled in, for as long as that takes. So many rows last for more than an hour.
  const scenario = { ...kit.core.scenario("two-harbours"), rows: 100_000 };
  const setUp = JSON.stringify({ v: 2, scenario, seed: 1, mode: "one", at: 0, speed: 0 });
  const use = async (playground, page) => {
    await playground.play.click();
    await playground.until("virtual-time", 3e8);
    const narrow = page.locator('#controls fieldset[data-provider="narrow"]');
    const number = async (root, name, value) => {
      await root.getByLabel(name, { exact: true }).fill(value);
      await root.getByLabel(name, { exact: true }).blur();
    };
    await page.getByLabel("Policy").first().selectOption("strict_fair");
    await number(page.locator("#controls"), "Weight of wide/wide_draft", "3");
    await number(narrow, "Cap", "12");
    await number(narrow, "Cut to", "0.5");
    await number(narrow, "Successes to raise", "10");
    await number(narrow, "Cooldown (s)", "1");
    await number(narrow, "Ramp (s)", "2");
    await page.locator('#controls fieldset[data-provider="wide"]').getByLabel("Limit", { exact: true }).selectOption("tide");
    await playground.until("virtual-time", (await playground.figure("virtual-time")) + 1e9);
    await playground.play.click();
    await playground.stands();
    const sample = await playground.sample();
    const { run, changes } = await told(playground);
    assert.deepEqual(
      changes.map(({ set }) => set),
      ["policy", "weight", "max_parallel", "request", "request", "request", "request", "algorithm"],
    );
    const last = changes.filter(({ set }) => set === "request").at(-1).request;
    assert.equal(last.decrease_factor, 0.5, "later settings keep the earlier ones");
    assert.equal(last.successes_until_increase, 10);
    assert.deepEqual(sample, shown(run.sample()));
    assert.equal(run.sample().providers[1].algorithm, "tide");
  };
  return kit.withPage(use, { hash: linkTo(setUp) });
});

test("settings build on each other however soon the next one is changed, at any instant", () => {
  // An instant whose next nanosecond is more than the sum of both in floating point: some three of a hundred are.
  let nanos = 1e9;
  while (nanos / 1e6 + 1e-6 >= (nanos + 1) / 1e6) nanos += 1;
  const setUp = JSON.stringify({ v: 2, scenario: "two-harbours", seed: 1, mode: "one", at: nanos / 1e6, speed: 0 });
  const use = async (playground, page) => {
    const [worker] = page.workers();
    // The run goes on, and not a nanosecond passes: no picture of a later instant comes between the two changes.
    await worker.evaluate(() => {
      const now = performance.now();
      performance.now = () => now;
    });
    await playground.play.click();
    const narrow = page.locator('#controls fieldset[data-provider="narrow"]');
    for (const [name, value] of [
      ["Cut to", "0.5"],
      ["Successes to raise", "10"],
    ]) {
      await narrow.getByLabel(name, { exact: true }).fill(value);
      await narrow.getByLabel(name, { exact: true }).blur();
      await page.locator("#phase:not([data-pending])").waitFor();
    }
    await playground.play.click();
    await playground.stands();
    const requests = (await playground.linked()).setUp.changes[0].map(({ request }) => request);
    assert.deepEqual(
      requests.map(({ decrease_factor, successes_until_increase }) => [decrease_factor, successes_until_increase]),
      [
        [0.5, 25],
        [0.5, 10],
      ],
    );
  };
  return kit.withPage(use, { hash: linkTo(setUp) });
});

test("a fixed limit begins at the present one, and can be moved", () =>
  kit.withPage(async (playground, page) => {
    await playground.playTo(3_000);
    const { providers } = await playground.sample();
    const fieldset = page.locator("#controls fieldset[data-provider]");
    await fieldset.getByLabel("Limit", { exact: true }).selectOption("fixed");
    await page.waitForFunction((limit) => document.querySelector('#controls fieldset[data-provider] input').value === String(limit), providers[0].limit);
    await fieldset.getByLabel("Fixed at").fill("7");
    await fieldset.getByLabel("Fixed at").blur();
    await playground.playTo(4_000);
    assert.equal((await playground.sample()).providers[0].limit, 7);
    await playground.seek.fill("1000");
    await page.waitForFunction(() => document.getElementById("virtual-time").dataset.value === "1000000000");
    await playground.stands();
    assert.equal(await fieldset.getByLabel("Limit", { exact: true }).inputValue(), "aimd", "the controls show what was in force then");
  }));

test("a person can move the provider's capacity while it runs, and give it back", () =>
  kit.withPage(async (playground, page) => {
    await playground.playTo(1_000);
    const capacity = page.locator('#explore [data-provider] [data-figure="capacity"]').first();
    const own = Number(await capacity.getAttribute("data-value"));
    const tide = page.locator("#explore input.capacity").first();
    await tide.focus();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    await page.waitForFunction((value) => document.querySelector('#explore [data-provider] [data-figure="capacity"]').dataset.value === String(value), own - 2);
    await page.getByRole("button", { name: "Drop to zero" }).first().click();
    await page.waitForFunction(() => document.querySelector('#explore [data-provider] [data-figure="capacity"]').dataset.value === "0");
    await page.getByRole("button", { name: /Give capacity back/ }).first().click();
    await page.waitForFunction((value) => document.querySelector('#explore [data-provider] [data-figure="capacity"]').dataset.value === String(value), own);
    const { changes } = await told(playground);
    assert.deepEqual(changes.map(({ slots }) => slots), [own - 1, own - 2, 0, "schedule"]);
  }));

test("a burst of 429 and a slow patch are changes too", () =>
  kit.withPage(async (playground, page) => {
    await playground.playTo(2_500);
    await page.getByRole("button", { name: "429 burst" }).first().click();
    await page.getByRole("button", { name: "Slow patch" }).first().click();
    await playground.playTo(5_000);
    const sample = await playground.sample();
    const { run, changes } = await told(playground);
    assert.deepEqual(changes.map(({ set }) => set), ["refuse", "slow"]);
    assert.deepEqual(sample, shown(run.sample()));
  }));

test("what cannot be is said, and changes nothing", () =>
  kit.withPage(async (playground, page) => {
    await playground.playTo(500);
    const input = page.locator("#controls fieldset[data-provider]").getByLabel("Cut to");
    // Past the browser's own check, as a script or an odd browser would.
    await input.evaluate((input) => {
      input.min = "";
      input.max = "";
      input.step = "any";
    });
    const before = await input.inputValue();
    await input.fill("7");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").filter({ hasText: /decrease_factor/ }).waitFor();
    assert.equal(await input.inputValue(), before, "the control shows what is in force");
    await page.getByRole("button", { name: "Close this message" }).click();
    await page.locator("#notice").waitFor({ state: "hidden" });
    assert.equal((await playground.linked()).setUp.changes, undefined);
  }));

test("what cannot be a setting does not stay in its field, and changes nothing", () =>
  kit.withPage(async (playground, page) => {
    const provider = page.locator("#controls fieldset[data-provider]").first();
    await provider.getByLabel("Limit", { exact: true }).selectOption("fixed");
    await provider.getByLabel("Fixed at", { exact: true }).waitFor();
    await playground.stands();
    const before = (await playground.linked()).setUp.changes;
    for (const [name, value] of [["Cap", ""], ["Fixed at", "0"], ["Ramp (s)", "-1"], [/^Weight of /, "1001"]]) {
      const field = page.locator("#controls").getByLabel(name, { exact: true }).first();
      const shown = await field.inputValue();
      await field.fill(value);
      await field.blur();
      assert.notEqual(shown, "");
      assert.equal(await field.inputValue(), shown, `${name} after ${value || "nothing"}`);
    }
    await playground.settles();
    assert.deepEqual((await playground.linked()).setUp.changes, before);
  }));

test("a click on a worker slot lists why its worker waits, as the core says", () =>
  kit.withPage(async (playground, page) => {
    await playground.playTo(3_000);
    const run = kit.replay(kit.first(), 1, (await playground.figure("virtual-time")) / 1e6);
    const lanes = page.locator("#explore").getByRole("application", { name: /^Worker slots/ });
    await lanes.scrollIntoViewIfNeeded();
    const { width, height } = await lanes.boundingBox();
    const count = Number(/^\d+/.exec(await page.locator("#explore .lanes-shown").textContent())[0]);
    const readout = page.locator("#explore .lanes .readout");
    let [lane, words, position] = [0, [], undefined];
    for (; lane < count; lane += 1) {
      words = run.why({ lane }).map(({ what, why }) => [what, why].map((text) => text.replaceAll("`", "")));
      // The time axis is below the slots.
      position = { x: width - 3, y: ((height - 22) * (lane + 0.5)) / count };
      await lanes.hover({ position });
      if (words.length > 0 && /, waiting, .* so far$/.test(await readout.textContent())) break;
    }
    assert.ok(lane < count, "a worker waits");
    await lanes.click({ position });
    const panel = page.getByRole("dialog", { name: `Why does the worker in slot ${lane + 1} wait?` });
    await panel.getByRole("listitem").first().waitFor();
    assert.deepEqual(
      await panel.getByRole("listitem").evaluateAll((items) => items.map((item) => [item.querySelector("strong").textContent, item.querySelector("p").textContent])),
      words,
    );
    run.free();
  }));

test("what waits says why, while it is open; Escape closes it, and the focus returns", () =>
  kit.withPage(async (playground, page) => {
    await playground.playTo(3_000);
    const ask = page.locator("#explore [data-provider] .why, #explore .providers .explain").first();
    await ask.focus();
    await page.keyboard.press("Enter");
    const panel = page.getByRole("dialog");
    await panel.waitFor();
    await panel.getByRole("listitem").first().waitFor();
    const run = kit.replay(kit.first(), 1, (await playground.figure("virtual-time")) / 1e6);
    const words = await panel.getByRole("listitem").evaluateAll((items) => items.map((item) => [item.querySelector("strong").textContent, item.querySelector("p").textContent]));
    assert.deepEqual(words, run.why({ provider: 0 }).map(({ what, why }) => [what, why].map((text) => text.replaceAll("`", ""))));
    assert.match(words.flat().join(" "), /limit|cooldown|calls/);
    const before = await panel.locator("ul").innerText();
    await page.keyboard.press(".");
    await playground.setSpeed(1);
    await page.locator("#play").click();
    await page.waitForFunction((before) => document.querySelector("#explain-list").innerText !== before, before);
    await page.keyboard.press("Escape");
    await panel.waitFor({ state: "hidden" });
    assert.ok(await ask.evaluate((button) => button === document.activeElement), "the focus is back");
  }));

test("when another run begins, a person in the panel of reasons is taken to the view, and one elsewhere stays", () =>
  kit.withPage(async (playground, page) => {
    await playground.playTo(1_000);
    const panel = page.getByRole("dialog");
    const ask = page.locator("#explore [data-provider] .why, #explore .providers .explain").first();
    const focused = () => page.evaluate(() => document.activeElement.id);
    await ask.click();
    await panel.waitFor();
    await page.getByRole("button", { name: "Reset" }).evaluate((button) => button.click());
    await panel.waitFor({ state: "hidden" });
    assert.equal(await focused(), "explore");
    await ask.click();
    await panel.waitFor();
    await page.getByRole("button", { name: "Reset" }).click();
    await panel.waitFor({ state: "hidden" });
    assert.equal(await focused(), "reset");
  }));
