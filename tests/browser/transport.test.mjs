// Play, pause, one decision, seek, speed, seed, reset: each does what it says, and the figures are the core's.
import assert from "node:assert/strict";
import { test } from "node:test";
import { playground, shown } from "./harness.mjs";
import { gate } from "../patience.mjs";
import { linkTo } from "./playground-page.mjs";

const kit = playground();

test("a clock that steps back does not stop a run", () =>
  kit.withPage(async (playground, page) => {
    const [worker] = page.workers();
    // The first readings are each earlier than the one before.
    await worker.evaluate(() => {
      const read = performance.now.bind(performance);
      let back = 0;
      performance.now = () => {
        back = Math.min(back + 10, 200);
        return read() - back;
      };
    });
    await playground.playTo(500, 0);
    assert.equal(await playground.phase(), "Paused");
  }));

test("a worker that sleeps right after a run has begun goes on with it", () =>
  kit.withPage(async (playground, page) => {
    const [worker] = page.workers();
    // Each reading is later than the one before; between any two of the first ones the machine was asleep.
    await worker.evaluate(() => {
      let [now, readings] = [performance.now(), 0];
      performance.now = () => {
        readings += 1;
        now += readings < 50 ? 1_000 : 0.1;
        return now;
      };
    });
    await playground.playTo(1, 0);
    assert.equal(await playground.phase(), "Paused");
  }));

test("the page opens on the first scenario, ready, and its controls have names", () =>
  kit.withPage(async (playground, page) => {
    assert.equal(await playground.phase(), "Ready");
    assert.equal(await page.locator("#description").textContent(), kit.core.scenarios()[0].description);
    assert.equal(await page.getByRole("combobox", { name: "Scenario" }).first().inputValue(), kit.core.scenarios()[0].title);
    for (const [role, name] of [
      ["spinbutton", "Seed"],
      ["button", "Play"],
      ["button", "Step"],
      ["button", "Reset"],
      ["slider", "Time"],
      ["slider", "Speed"],
      ["tab", "Watch"],
      ["tab", "Explore"],
      ["tab", "Compare"],
      ["tab", "Machines"],
      ["tab", "Scenario"],
      ["tab", "Lessons"],
      ["tab", "Share and export"],
    ]) {
      assert.equal(await page.getByRole(role, { name, exact: true }).count(), 1, `one ${role} called ${name}`);
    }
  }));

test("on a phone the bar has two rows, the chart is in the first glance, and speed and seed open by keyboard", () =>
  kit.withPage(
    async (playground, page) => {
      const [bar, chart] = await Promise.all([".transport", "#explore .chart"].map((part) => page.locator(part).first().boundingBox()));
      const rows = await page.locator(".transport").evaluate((bar) => new Set([...bar.querySelectorAll("button, .field")].filter((one) => one.checkVisibility()).map((one) => Math.round(one.getBoundingClientRect().bottom))).size);
      assert.equal(rows, 2);
      assert.ok(bar.height < 110, `${bar.height}`);
      assert.ok(chart.y + 100 < 844, `the chart begins at ${chart.y}`);
      const seed = page.getByRole("spinbutton", { name: "Seed", exact: true });
      assert.equal(await seed.isVisible(), false);
      const more = page.getByRole("button", { name: "Speed, seed" });
      await page.getByRole("button", { name: "Reset" }).focus();
      await page.keyboard.press("Tab");
      await page.keyboard.press("Enter");
      assert.equal(await more.getAttribute("aria-expanded"), "true");
      await seed.fill("7");
      await playground.speed.fill("1");
      await more.press("Enter");
      assert.deepEqual([await seed.isVisible(), await playground.speed.isVisible()], [false, false]);
      await playground.reaches("Ready");
    },
    { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true },
  ));

for (const width of [360, 390]) {
  test(`at a width of ${width} the bar is no wider than the screen, and as high, before, during and after a run`, () =>
    kit.withPage(
      async (playground, page) => {
        // No mobile device: that one makes the window as wide as what sticks out.
        const sizes = () => page.evaluate(() => ({ page: document.documentElement.scrollWidth, window: innerWidth, buttons: document.querySelector(".transport .buttons").offsetHeight }));
        const ready = await sizes();
        assert.deepEqual([ready.page, ready.window], [width, width]);
        const fits = async (phase) => {
          await playground.reaches(phase);
          assert.deepEqual(await sizes(), ready, phase);
        };
        await playground.play.click();
        await fits("Running");
        const more = page.getByRole("button", { name: "Speed, seed" });
        await more.click();
        assert.deepEqual(await sizes(), ready, "with the speed and the seed");
        await playground.speed.fill("4");
        await more.click();
        await fits("Finished");
      },
      { viewport: { width, height: 844 } },
    ));
}

test("the controls of the run stay in sight at the end of the page", () =>
  kit.withPage(async (playground, page) => {
    await playground.playTo(1_000);
    await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
    await playground.framesPass(2);
    assert.ok(await page.evaluate(() => scrollY > 0 && Math.abs(scrollY + innerHeight - document.documentElement.scrollHeight) < 2), "this is its end");
    const isInFront = await playground.play.evaluate((play) => {
      const { top, bottom, left, right } = play.getBoundingClientRect();
      return top >= 0 && bottom <= innerHeight && play.contains(document.elementFromPoint((left + right) / 2, (top + bottom) / 2));
    });
    assert.ok(isInFront, "a person can press Play");
  }));

for (const width of [360, 390, 1440]) {
  test(`the figures of this instant stand in one row at a width of ${width}`, () =>
    kit.withPage(
      async (playground, page) => {
        // Numbers of four digits and more.
        await playground.playTo(20_000, 2);
        const tops = await page.locator(".figures dd").evaluateAll((all) => all.filter((one) => one.checkVisibility()).map((one) => Math.round(one.getBoundingClientRect().top)));
        assert.equal(new Set(tops).size, 1, `${tops}`);
        assert.ok(tops.length >= 4, `${tops.length} figures`);
        assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth), 0, "nothing sticks out sideways");
      },
      { viewport: { width, height: 844 } },
    ));
}

test("while it plays, virtual time and the chart move", () =>
  kit.withPage(async (playground, page) => {
    const provider = await page.locator("#explore [data-provider]").first().getAttribute("data-provider");
    const dry = await playground.painted(provider, "--in-flight");
    await playground.play.click();
    await playground.until("virtual-time", 3e9);
    const early = await playground.sample();
    await playground.until("virtual-time", early.at + 1e9);
    const late = await playground.sample();
    assert.ok(late.steps > early.steps && late.running > 0);
    const wet = await playground.painted(provider, "--in-flight");
    assert.ok(wet > dry + 50, `the water is drawn: ${dry} pixels before, ${wet} after`);
  }));

test("Space plays and pauses; a pause stops everything, and the figures are those of the core at that instant", () =>
  kit.withPage(async (playground, page) => {
    await page.locator("#seed").fill("7");
    await page.locator("#seed").blur();
    await playground.reaches("Ready");
    await page.keyboard.press("Space");
    await playground.reaches("Running");
    await playground.until("virtual-time", 3e9);
    await page.keyboard.press("Space");
    await playground.reaches("Paused");
    await playground.stands();
    const paused = await playground.sample();
    // A run that goes on moves in each of these rounds.
    for (let round = 0; round < 5; round += 1) await playground.settles();
    assert.deepEqual(await playground.sample(), paused, "nothing moves");
    assert.deepEqual(paused, shown(kit.replay(kit.first(), 7, paused.at / 1e6).sample()));
  }));

test("a step is exactly one decision, by button and by key", () =>
  kit.withPage(async (playground, page) => {
    const run = kit.replay(kit.first(), 1, 0);
    const begin = (await playground.sample()).steps;
    const own = new kit.core.Playground(kit.core.scenario(kit.first()), 1);
    assert.equal(begin, own.sample().steps);
    for (const press of [() => page.getByRole("button", { name: "Step", exact: true }).click(), () => page.keyboard.press(".")]) {
      const { steps } = await playground.sample();
      await press();
      await page.waitForFunction((steps) => Number(document.getElementById("steps").dataset.value) === steps + 1, steps);
      await playground.stands();
      own.step();
      assert.deepEqual(await playground.sample(), shown(own.sample()));
    }
    run.free();
  }));

test("a person can seek back and forth, and everything is as it was", () =>
  kit.withPage(async (playground, page) => {
    await playground.playTo(6_000);
    const late = await playground.sample();
    const back = Math.floor(late.at / 3e6);
    await playground.seek.fill(String(back));
    await page.waitForFunction((at) => Number(document.getElementById("virtual-time").dataset.value) === at, back * 1e6);
    await playground.stands();
    assert.deepEqual(await playground.sample(), shown(kit.replay(kit.first(), 1, back).sample()));
    await page.locator("#branch", { hasText: "before the end of what has run" }).waitFor();
    await playground.seek.focus();
    await page.keyboard.press("End");
    await page.waitForFunction((at) => Number(document.getElementById("virtual-time").dataset.value) === at, late.at);
    await playground.stands();
    assert.deepEqual(await playground.sample(), late);
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press("ArrowLeft");
    await page.waitForFunction((at) => Number(document.getElementById("virtual-time").dataset.value) < at, late.at);
    await page.keyboard.press("ArrowRight");
    await page.waitForFunction((at) => Number(document.getElementById("virtual-time").dataset.value) === at, late.at);
  }));

test("a change after a seek back begins a new branch, and the page says so", () =>
  kit.withPage(async (playground, page) => {
    await playground.playTo(5_000);
    await playground.seek.fill("2000");
    await page.waitForFunction(() => Number(document.getElementById("virtual-time").dataset.value) === 2e9);
    const provider = page.locator("#controls fieldset[data-provider]").first();
    await provider.getByRole("spinbutton", { name: "Cap" }).fill("5");
    await provider.getByRole("spinbutton", { name: "Cap" }).blur();
    await page.locator("#branch", { hasText: "A new branch begins at 2.0 s" }).waitFor();
    // The change comes a nanosecond after the instant that a person sees.
    await page.waitForFunction(() => Number(document.getElementById("seek").max) === 2000.000001);
  }));

test("reset goes back to the start, and forgets what was changed by hand", () =>
  kit.withPage(async (playground, page) => {
    await playground.playTo(2_000);
    await page.getByRole("button", { name: "429 burst" }).first().click();
    await page.getByRole("button", { name: "Reset" }).click();
    await playground.reaches("Ready");
    await page.waitForFunction(() => document.getElementById("virtual-time").dataset.value === "0");
    await playground.stands();
    assert.deepEqual(await playground.sample(), shown(new kit.core.Playground(kit.core.scenario(kit.first()), 1).sample()));
    assert.equal((await playground.linked()).setUp.changes, undefined);
  }));

test("the speed slider sets how much virtual time passes in a span of the worker's clock", () =>
  kit.withPage(async (playground, page) => {
    const [worker] = page.workers();
    await playground.ownClock();
    const instant = async () => ({ virtual: (await playground.figure("virtual-time")) / 1e6, real: await worker.evaluate(() => performance.now()) });
    for (const exponent of [-1, 0, 1]) {
      const speed = 10 ** exponent;
      await playground.setSpeed(exponent);
      const before = await instant();
      await playground.play.click();
      await playground.until("virtual-time", (before.virtual + 640 * speed) * 1e6);
      await playground.play.click();
      await playground.stands();
      const after = await instant();
      const [virtual, real] = [after.virtual - before.virtual, after.real - before.real];
      // A turn is planned before the pause, and may come after it.
      assert.ok(virtual <= speed * real && virtual >= speed * (real - 2 * 16), `at ${speed}x ${virtual} ms passed in ${real}`);
    }
  }));

test("at full speed a run ends, says so, and its digest is that of the core", () =>
  kit.withPage(async (playground, page) => {
    await playground.choose("cold-ramp");
    await playground.setSpeed(4);
    await playground.play.click();
    await playground.reaches("Finished");
    const result = page.getByRole("region", { name: "Result of the run" });
    await result.waitFor();
    const expected = kit.replay("cold-ramp");
    assert.equal(await page.locator("#digest").textContent(), expected.digest());
    assert.deepEqual(await playground.sample(), shown(expected.sample()));
    await result.getByRole("button", { name: "Run again" }).click();
    await playground.reaches("Finished");
    assert.equal(await page.locator("#digest").textContent(), expected.digest());
  }));

test("a scenario that is waited for is told, and nothing else waits; the last one picked counts", () =>
  kit.withPage(
    async (playground, page) => {
      const held = gate();
      await page.route("**/tidegate_scenario_texts-*.js", (route) => held.wait().then(() => route.continue()));
      const { title, description } = kit.core.scenarios().find(({ name }) => name === "cold-ramp");
      await playground.choose("two-harbours", { isHeldUp: true });
      await playground.choose("cold-ramp", { isHeldUp: true });
      await page.locator("#description").filter({ hasText: `${title} is being loaded.` }).waitFor();
      await playground.playTo(500);
      await page.locator("#seed").fill("9");
      await page.locator("#seed").blur();
      await playground.reaches("Ready");
      assert.equal((await playground.linked()).setUp.scenario, kit.first());
      held.open();
      await page.locator("#description").filter({ hasText: description }).waitFor();
      await playground.stands();
      const { scenario, seed } = (await playground.linked()).setUp;
      assert.deepEqual([scenario, seed], ["cold-ramp", 9]);
    },
    { serviceWorkers: "block" },
  ));

test("a scenario that cannot be loaded leaves the run as it is, and the message goes with the next one", () =>
  kit.withPage(
    async (playground, page) => {
      await page.route("**/tidegate_scenario_texts-*.js", (route) => route.abort());
      playground.isOffline = true;
      await playground.choose("cold-ramp");
      const notice = page.getByRole("alert").filter({ hasText: /^\s*The scenario could not be loaded: the server does not answer, or has a newer version\. Try again, or load the page again\.\s*(Close)?\s*$/ });
      await notice.waitFor();
      assert.equal(await page.getByRole("combobox", { name: "Scenario" }).first().inputValue(), kit.core.scenarios()[0].title);
      assert.equal(await page.locator("#description").textContent(), kit.core.scenarios()[0].description);
      await page.unroute("**/tidegate_scenario_texts-*.js");
      playground.isOffline = false;
      await playground.choose("cold-ramp");
      await notice.waitFor({ state: "hidden" });
      assert.equal((await playground.linked()).setUp.scenario, "cold-ramp");
    },
    { serviceWorkers: "block" },
  ));

test("a set-up that is refused leaves the run, and the way through it, as they were", () =>
  kit.withPage(async (playground, page) => {
    await playground.playTo(3_000);
    const hash = linkTo('{"v":2,"scenario":"cold-ramp","seed":2,"mode":"one","changes":[[{"at_ms":1,"set":"weight","column":"none","weight":2}]],"at":0,"speed":0.3}');
    await page.evaluate((hash) => (location.hash = hash), hash);
    await page.getByRole("alert").filter({ hasText: "The page stays as it was" }).waitFor();
    for (const at of [2_000, 1_000, 1_500]) {
      await playground.seek.fill(String(at));
      await page.waitForFunction((at) => Number(document.getElementById("virtual-time").dataset.value) === at, at * 1e6);
    }
    await playground.stands();
    assert.deepEqual(await playground.sample(), shown(kit.replay(kit.first(), 1, 1_500).sample()));
    assert.equal(await page.locator("#seed").inputValue(), "1");
  }));

test("a run that was left behind its end is found so, and a change drops what came later", () =>
  kit.withPage(async (playground, page) => {
    await playground.playTo(2_000);
    await page.getByRole("button", { name: "429 burst" }).first().click();
    await playground.playTo(3_000);
    await playground.seek.fill("1000");
    await page.waitForFunction(() => Number(document.getElementById("virtual-time").dataset.value) === 1e9);
    const { address, setUp } = await playground.linked();
    assert.deepEqual(setUp.changes[0].map(({ set }) => set), ["refuse"]);
    const changeNow = async ({ page, linked }) => {
      await page.locator("#branch", { hasText: "before the end of what has run" }).waitFor();
      await page.getByRole("button", { name: "Slow patch" }).first().click();
      await page.locator("#branch", { hasText: "A new branch begins at 1.0 s" }).waitFor();
      await page.waitForFunction(() => Number(document.getElementById("seek").max) < 2_000);
      return (await linked()).setUp.changes[0].map(({ set }) => set);
    };
    await playground.tab("Compare");
    await playground.stands();
    await playground.tab("Explore");
    await page.waitForFunction(() => Number(document.getElementById("virtual-time").dataset.value) === 1e9);
    assert.deepEqual(await changeNow({ page, linked: () => playground.linked() }), ["slow"], "after another tab");
    await kit.withPage(async (other) => assert.deepEqual(await changeNow({ page: other.page, linked: () => other.linked() }), ["slow"], "from a link"), { hash: new URL(address).hash });
  }));

test("a change on the way back to the end begins a new branch, too, and the page says so", () =>
  kit.withPage(async (playground, page) => {
    await playground.playTo(5_000);
    await playground.seek.fill("1000");
    await page.waitForFunction(() => Number(document.getElementById("virtual-time").dataset.value) === 1e9);
    await playground.setSpeed(-1);
    await playground.play.click();
    await playground.reaches("Running");
    await page.getByRole("button", { name: "Slow patch" }).first().click();
    await page.locator("#branch", { hasText: "A new branch begins at 1." }).waitFor();
  }));

test("a slider that is let go where it was taken follows the run again", () =>
  kit.withPage(async (playground, page) => {
    await playground.playTo(1_000);
    await playground.seek.evaluate((slider) => {
      slider.dispatchEvent(new Event("input"));
      slider.dispatchEvent(new Event("pointercancel"));
    });
    await playground.playTo(2_000);
    assert.ok(Number(await playground.seek.inputValue()) >= 2_000);
  }));

test("what cannot be a seed does not stay in its field", () =>
  kit.withPage(async (playground, page) => {
    for (const value of ["-3", "", "1.5"]) {
      await page.locator("#seed").fill(value);
      await page.locator("#seed").blur();
      assert.equal(await page.locator("#seed").inputValue(), "1", `after ${value || "nothing"}`);
    }
    assert.equal((await playground.linked()).setUp.seed, 1);
  }));
