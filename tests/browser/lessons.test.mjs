// The guided tour: five lessons, each of which sets the page up and notices what a person does.
import assert from "node:assert/strict";
import { test } from "node:test";
import { playground } from "./harness.mjs";

const kit = playground();

/** What a person does in each step; nothing: watches. */
const LESSONS = [
  {
    title: "A 429 storm without a limit",
    steps: [play, (page) => page.locator("#controls fieldset[data-provider]").getByLabel("Limit", { exact: true }).selectOption("aimd"), watch],
  },
  {
    title: "AIMD finds the tide",
    steps: [play, (page) => page.locator("#explore input.capacity").fill("5"), (page) => page.locator("#explore input.capacity").fill("12"), (page) => page.locator("#explore .explain").first().click()],
  },
  {
    title: "A ramp against a cold server",
    steps: [play, hurry, async (page) => (await page.locator('fieldset[data-side="0"]').getByLabel("Ramp", { exact: true }).selectOption(" 10000"), await still(page), await play(page))],
  },
  {
    title: "Borrow and repay",
    steps: [play, hurry, (page) => page.locator("#controls").getByLabel("Policy", { exact: true }).selectOption("strict_fair")],
  },
  { title: "A cooled-down provider must not block its neighbour", steps: [play, hurry, watch] },
];

async function play(page) {
  await page.locator("#play").click();
}

async function hurry(page) {
  await page.getByRole("slider", { name: "Speed" }).fill("2");
}

async function watch() {}

async function still(page) {
  await page.locator("#phase").filter({ hasText: "Ready" }).waitFor();
}

LESSONS.forEach(({ title, steps }, index) => {
  test(`lesson ${index + 1}: ${title}`, () =>
    kit.withPage(
      async (playground, page) => {
        await page.getByRole("button", { name: new RegExp(`^Start lesson ${index + 1}`) }).click();
        const coach = page.getByRole("region", { name: "Lesson" });
        await coach.getByRole("heading", { name: title }).waitFor();
        for (const [number, act] of steps.entries()) {
          await coach.getByRole("img", { name: `Step ${number + 1} of ${steps.length}` }).waitFor();
          assert.ok((await coach.locator(".look").textContent()).length > 40, "says what to look at");
          const target = page.locator(".spot");
          if ((await coach.getAttribute("data-done")) === null) assert.equal(await target.first().isVisible(), true, `step ${number + 1} shows where`);
          await act(page);
          // A step that is done goes on to the next one by itself; the last one waits for a person.
          const next = `Step ${number + 2} of `;
          if (number < steps.length - 1) await playground.waits((next) => document.querySelector(`#coach [role=img][aria-label^="${next}"]`) !== null, next);
          else await playground.waits(() => document.querySelector("#coach[data-done]") !== null);
        }
        if (await page.locator("#explain").isVisible()) await page.keyboard.press("Escape");
        await coach.getByRole("button", { name: index === LESSONS.length - 1 ? "Finish" : "Next lesson" }).click();
        if (index === LESSONS.length - 1) await coach.waitFor({ state: "hidden" });
        else await coach.getByRole("heading", { name: LESSONS[index + 1].title }).waitFor();
      },
      { hash: "#/lessons" },
    ));
});

test("a step can be passed, taken back, and the tour ended at any time", () =>
  kit.withPage(
    async (playground, page) => {
      await page.getByRole("button", { name: /^Start lesson 2/ }).click();
      const coach = page.getByRole("region", { name: "Lesson" });
      await coach.getByRole("button", { name: "Next", exact: true }).click();
      await coach.getByRole("img", { name: "Step 2 of 4" }).waitFor();
      await coach.getByRole("button", { name: "Show me where" }).click();
      assert.ok(await page.locator("#explore input.capacity").evaluate((one) => one === document.activeElement));
      await coach.getByRole("button", { name: "Back" }).click();
      await coach.getByRole("img", { name: "Step 1 of 4" }).waitFor();
      await coach.getByRole("button", { name: "End tour" }).click();
      await coach.waitFor({ state: "hidden" });
      assert.equal(await page.getByRole("tab", { selected: true }).textContent(), "Lessons");
    },
    { hash: "#/lessons" },
  ));
