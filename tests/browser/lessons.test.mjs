// The lessons: each sets the page up, stands beside what it speaks of, and notices what a person does.
import assert from "node:assert/strict";
import { test } from "node:test";
import { playground } from "./harness.mjs";

const kit = playground();

const machines = (page) => page.locator("#machines");
const live = (page) => page.locator("#controls");

/** What a person does in each step; `watch`: nothing. `watches`: what there is to watch once the run begins. */
const LESSONS = [
  { title: "A storm of 429s", watches: "#explore .chart", steps: [play, (page) => live(page).getByLabel("Limit", { exact: true }).selectOption("aimd"), watch] },
  {
    title: "The limit finds the capacity",
    watches: "#explore .chart",
    steps: [play, (page) => page.locator("#explore input.capacity").fill("5"), (page) => page.locator("#explore input.capacity").fill("12"), explain],
  },
  {
    title: "A ramp for a cold server",
    watches: "#compare .chart",
    steps: [play, hurry, async (page) => (await page.locator('fieldset[data-side="0"]').getByLabel("Ramp", { exact: true }).selectOption("10000"), await still(page), await play(page))],
  },
  { title: "A cooldown instead of hammering", watches: "#explore .chart", steps: [play, (page) => page.getByRole("button", { name: "429 burst" }).click(), watch, watch] },
  {
    title: "A fair share by weight",
    watches: "#explore .queues",
    steps: [play, async (page) => (await live(page).getByLabel("Weight of ample/first").fill("3"), await page.keyboard.press("Enter")), watch],
  },
  { title: "Borrow and repay", watches: "#explore .queues", steps: [play, hurry, (page) => live(page).getByLabel("Policy", { exact: true }).selectOption("strict_fair")] },
  { title: "A waiting worker yields its slot", watches: "#compare [data-provider=b] .chart", steps: [play, hurry, watch] },
  { title: "An outage, and no row lost", watches: "#explore .chart", steps: [play, explain, hurry, watch] },
  { title: "A limit on calls per minute", watches: "#compare .chart", steps: [play, hurry, watch] },
  {
    title: "Three machines, one provider",
    hasOwnView: true,
    steps: [
      (page) => machines(page).getByRole("button", { name: "Play" }).click(),
      (page) => machines(page).getByRole("slider", { name: "Demand of machine B" }).fill("1"),
      (page) => machines(page).getByRole("button", { name: "Cut off machine C from the store" }).click(),
      (page) => page.locator("#machines [data-leads] .kill").click(),
      async (page) => {
        await machines(page).getByRole("button", { name: /^Start machine/ }).click();
        await machines(page).getByRole("button", { name: "Reconnect machine C" }).click();
      },
    ],
  },
];

async function play(page) {
  await page.locator("#play").click();
}

async function hurry(page) {
  await page.getByRole("slider", { name: "Speed" }).fill("2");
}

async function explain(page) {
  await page.locator("#explore .provider-name").first().click();
}

async function watch() {}

async function still(page) {
  await page.locator("#phase").filter({ hasText: "Ready" }).waitFor();
}

LESSONS.forEach(({ title, steps }, index) => {
  test(`lesson ${index + 1}: ${title}`, () =>
    kit.withPage(
      async (playground, page) => {
        await page.getByRole("button", { name: `Start lesson ${index + 1}: ${title}` }).click();
        const lesson = page.getByRole("region", { name: "Lesson" });
        await lesson.getByRole("heading", { name: title }).waitFor();
        for (const [number, act] of steps.entries()) {
          await lesson.getByRole("img", { name: `Step ${number + 1} of ${steps.length}` }).waitFor();
          assert.ok((await lesson.locator(".look").textContent()).length > 30, "it says what to look at");
          const isDone = async () => (await lesson.getAttribute("data-done")) !== null;
          if (!(await isDone())) assert.ok((await page.locator(".spot").first().isVisible()) || (await isDone()), `step ${number + 1} shows where`);
          await act(page);
          // A step that is done goes on to the next one by itself; the last one waits for a person.
          const next = `Step ${number + 2} of `;
          if (number < steps.length - 1) await playground.waits((next) => document.querySelector(`#lesson [role=img][aria-label^="${next}"]`) !== null, next);
          else await playground.waits(() => document.querySelector("#lesson [data-done]") !== null);
          if (await page.locator("#explain").isVisible()) await page.keyboard.press("Escape");
        }
        const isLast = index === LESSONS.length - 1;
        await lesson.getByRole("button", { name: isLast ? "Finish" : "Next lesson" }).click();
        if (!isLast) {
          await lesson.getByRole("heading", { name: LESSONS[index + 1].title }).waitFor();
          await lesson.getByRole("button", { name: "End the lesson" }).click();
        }
        await lesson.waitFor({ state: "hidden" });
        assert.deepEqual(await page.locator("#lessons li").evaluateAll((all) => all.map((one) => one.textContent.includes("Done"))), LESSONS.map((_, one) => one === index));
      },
      { hash: "#/lessons" },
    ));
});

test("a step can be passed, taken back, and the lesson ended at any time", () =>
  kit.withPage(
    async (_, page) => {
      await page.getByRole("button", { name: /^Start lesson 2/ }).click();
      const lesson = page.getByRole("region", { name: "Lesson" });
      await lesson.getByRole("button", { name: "Next", exact: true }).click();
      await lesson.getByRole("img", { name: "Step 2 of 4" }).waitFor();
      await lesson.getByRole("button", { name: "Show me where" }).click();
      assert.ok(await page.locator("#explore input.capacity").evaluate((one) => one === document.activeElement));
      await lesson.getByRole("button", { name: "Back" }).click();
      await lesson.getByRole("img", { name: "Step 1 of 4" }).waitFor();
      await lesson.getByRole("button", { name: "End the lesson" }).click();
      await lesson.waitFor({ state: "hidden" });
      assert.equal(await page.getByRole("tab", { selected: true }).textContent(), "Lessons");
    },
    { hash: "#/lessons" },
  ));

test("a machine that is cut off keeps its slots until its lease ends; the others get them later, and the provider refuses nothing", () =>
  kit.withPage(
    async (playground, page) => {
      await playground.tab("Machines");
      const view = machines(page);
      const machine = (name) => view.getByRole("region", { name: `Machine ${name}` });
      const shares = async (...expected) =>
        playground.waits((expected) => JSON.stringify([...document.querySelectorAll("#machines [data-share]")].map((one) => Number(one.dataset.share))) === expected, JSON.stringify(expected));
      await view.getByRole("button", { name: "Play" }).click();
      await shares(4, 4, 4);
      await machine("C").getByRole("button", { name: "Cut off machine C from the store" }).click();
      await machine("C").getByText("cut off", { exact: true }).waitFor();
      await shares(6, 6, 0);
      await machine("C").getByText("Cut off, so no share: 0 in flight, 12 wait.").waitFor();
      await view.getByRole("button", { name: "Pause" }).click();
      const events = await view.getByRole("list", { name: "What happened" }).getByRole("listitem").allTextContents();
      const said = ["The leader takes back the share of machine C, 4 slots. Those of calls that may be out stay reserved for 5.0 s.", "The lease of machine C ends: it starts no more calls.", "Machine C is cut off from the store."];
      assert.deepEqual(events.slice(0, 3).map((event) => said.findIndex((text) => event.endsWith(text))), [0, 1, 2], "the newest is first");
      assert.match(await view.getByRole("region", { name: "Provider" }).textContent(), / 0 refused \(429\)/);
      await view.getByRole("button", { name: "Start over" }).click();
      await machine("C").getByText("Waits for a share").waitFor();
    },
    { hash: "#/lessons" },
  ));

test("a machine that is killed while it is cut off says what brings it back", () =>
  kit.withPage(
    async (playground, page) => {
      await playground.tab("Machines");
      const view = machines(page);
      const machine = view.getByRole("region", { name: "Machine C" });
      await view.getByRole("button", { name: "Play" }).click();
      await machine.getByText(/^Share 4: /).waitFor();
      await view.getByRole("button", { name: "Cut off machine C from the store" }).click();
      await view.getByRole("button", { name: "Kill machine C" }).click();
      await machine.getByText(/^Killed and cut off/).waitFor();
      await machine.getByText("cut off", { exact: true }).waitFor();
      await view.getByRole("button", { name: "Start machine C" }).click();
      await machine.getByText("Cut off, so no share: 0 in flight, 12 wait.").waitFor();
      await view.getByRole("button", { name: "Reconnect machine C" }).click();
      await machine.getByText(/^Share 4: /).waitFor();
    },
    { hash: "#/lessons" },
  ));

/** Keeps the memory of the machines' module. */
const keepMemory = () => {
  const { instantiateStreaming } = WebAssembly;
  WebAssembly.instantiateStreaming = async (...source) => {
    const made = await instantiateStreaming(...source);
    if (made.instance.exports.machines_new) window.memory = made.instance.exports.memory;
    return made;
  };
};

test("after a defect of the core the machines start over in a fresh instance of its module", () =>
  kit.withPage(
    async (playground, page) => {
      await playground.tab("Machines");
      const view = machines(page);
      const share = view.getByRole("region", { name: "Machine A" }).getByText(/^Share 4: /);
      await view.getByRole("button", { name: "Play" }).click();
      await share.waitFor();
      // No input makes the core panic. What a panic leaves cannot be used either.
      await page.evaluate(() => new Uint8Array(window.memory.buffer).fill(255));
      await view.getByRole("alert").waitFor();
      await view.getByRole("button", { name: "Start over" }).click();
      await view.getByRole("alert").waitFor({ state: "detached" });
      await view.getByRole("button", { name: "Play" }).click();
      await share.waitFor();
    },
    { hash: "#/lessons", script: keepMemory },
  ));

test("a link leads to the machines, and equal runs of them have equal figures", () =>
  kit.withPage(
    async (playground, page) => {
      await playground.tab("Machines");
      await page.goto(page.url());
      await page.reload();
      await machines(page).getByRole("button", { name: "Play" }).waitFor();
      assert.equal(await page.getByRole("tab", { selected: true }).textContent(), "Machines");
      const figures = (seed) => {
        const run = new kit.machines.Machines(seed);
        run.advanceTo(5_000);
        run.change({ set: "alive", process: 0, alive: false });
        run.advanceTo(9_000);
        assert.throws(() => run.change({ set: "demand", process: 3, calls: 1 }), /there is no process 3: expected a number below 3/);
        return { sample: run.sample(), events: run.takeEvents() };
      };
      assert.deepEqual(figures(1), figures(1));
      assert.notDeepEqual(figures(1), figures(2));
    },
    { hash: "#/lessons" },
  ));

for (const [look, viewport] of [["wide", { width: 1440, height: 900 }], ["narrow", { width: 390, height: 844 }]]) {
  test(`a lesson covers nothing of what it speaks of, and both are in sight: ${look}`, () =>
    kit.withPage(
      async (playground, page) => {
        const lesson = page.getByRole("region", { name: "Lesson" });
        for (const [number] of LESSONS.entries()) {
          if (number === 0) await page.getByRole("button", { name: /^Start lesson 1:/ }).click();
          else await lesson.getByRole("button", { name: "Next lesson" }).click();
          await lesson.getByRole("heading", { name: LESSONS[number].title }).waitFor();
          if (!LESSONS[number].hasOwnView) await playground.stands();
          for (let step = 0; ; step += 1) {
            await lesson.getByRole("img", { name: `Step ${step + 1} of` }).waitFor();
            const problem = await page.waitForFunction(placement, undefined).then((found) => found.jsonValue());
            assert.equal(problem, "fits", `lesson ${number + 1}, step ${step + 1}`);
            const next = lesson.getByRole("button", { name: "Next", exact: true });
            if (!(await next.isVisible())) break;
            await next.click();
          }
        }
      },
      { hash: "#/lessons", viewport, reducedMotion: "reduce" },
    ));
}

for (const [look, viewport] of [["wide", { width: 1440, height: 900 }], ["narrow", { width: 390, height: 844 }]]) {
  test(`once the run of a lesson begins, what there is to watch is in sight, and so is Play: ${look}`, () =>
    kit.withPage(
      async (playground, page) => {
        // No virtual time passes, so that no step is done.
        await playground.ownClock(0);
        for (const [number, { title, watches }] of LESSONS.entries()) {
          if (!watches) continue;
          await page.getByRole("button", { name: `Start lesson ${number + 1}: ${title}` }).click();
          await page.getByRole("region", { name: "Lesson" }).getByRole("heading", { name: title }).waitFor();
          await playground.stands();
          await playground.play.click();
          await playground.reaches("Running");
          await page.waitForFunction(placement, watches).catch(() => assert.fail(`lesson ${number + 1}: ${watches} is not in sight`));
          assert.equal(await page.evaluate(placement, "#play"), "fits");
          await page.getByRole("button", { name: "End the lesson" }).click();
        }
      },
      { hash: "#/lessons", viewport, reducedMotion: "reduce" },
    ));
}

/** Whether something is in sight, as what the lesson points at; for `waitForFunction`. A step that is done points at nothing, and neither
 * does one about the result of a run that has not ended. Of a provider that is pointed at, the chart is in sight, too. */
function placement(selector = ".spot") {
  const target = document.querySelector(selector);
  const panel = document.querySelector("#lesson section").getBoundingClientRect();
  const bar = document.querySelector(".transport");
  if (panel.bottom > innerHeight + 1 || panel.top < 0) return `the panel is not in sight: ${JSON.stringify(panel)}`;
  if (!target || target.getBoundingClientRect().height === 0) return "fits";
  const isFree = (element, most) => {
    const { left, right, top, height } = element.getBoundingClientRect();
    const bottom = top + Math.min(height, most);
    const isBelowBar = bar.contains(element) || top >= bar.getBoundingClientRect().bottom;
    return isBelowBar && top >= 0 && bottom <= innerHeight && (right <= panel.left || panel.right <= left || bottom <= panel.top);
  };
  const chart = target.matches(".provider") && target.querySelector(".chart");
  // Of something taller than the window, the top is enough.
  return isFree(target, 120) && (!chart || isFree(chart, 1e4)) ? "fits" : false;
}
