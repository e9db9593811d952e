// A picture of every view, light, dark and narrow, for people to look at; nothing sticks out sideways, everything has a
// name; and the sources agree with the generated types.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { assertReadable } from "./contrast.mjs";
import { ARTIFACTS, exportSite, outputOf } from "./demo.mjs";
import { playground } from "./harness.mjs";
import { PlaygroundPage } from "./playground-page.mjs";
import { serveFolder } from "./dashboard-site.mjs";

const kit = playground();

const WIDE = { viewport: { width: 1440, height: 900 } };
const NARROW = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true };
const LOOKS = {
  light: { colorScheme: "light", ...WIDE },
  dark: { colorScheme: "dark", ...WIDE },
  narrow: { colorScheme: "light", ...NARROW },
  "narrow-dark": { colorScheme: "dark", ...NARROW },
};

/** How each view comes to show something. */
const VIEWS = {
  explore: async (playground) => {
    await playground.choose("falling-capacity");
    await playground.playTo(9_000);
  },
  why: async (playground, page) => {
    await playground.choose("two-harbours");
    await playground.playTo(3_000);
    await page.locator("#explore .explain").nth(1).click();
    await page.locator("#explain-list li").first().waitFor();
  },
  compare: async (playground) => {
    await playground.compare("Fixed limit, AIMD", 12_000);
  },
  scenario: async (playground, page) => {
    await playground.openText();
    await playground.rewrite(kit.text().replace("row_groups = 4", "row_groups = -4"));
    await page.getByRole("button", { name: "Apply" }).click();
    await page.locator(".cm-lint-marker-error").waitFor();
  },
  picker: async (playground, page) => {
    await page.getByRole("combobox", { name: "Scenario" }).first().click();
  },
  tour: async (playground, page) => {
    await playground.tab("Lessons");
    await page.locator("#lessons li").first().waitFor();
  },
  lesson: async (playground, page) => {
    await playground.tab("Lessons");
    await page.getByRole("button", { name: /^Start lesson 2/ }).click();
    await playground.stands();
  },
  machines: async (playground, page) => {
    await playground.tab("Machines");
    await page.getByRole("button", { name: "Play", exact: true }).click();
    await page.getByRole("button", { name: "Cut off machine C from the store" }).click();
    await page.locator('#machines [data-machine="1"][data-share="6"]').waitFor();
  },
  take: async (playground, page) => {
    await playground.playTo(2_000);
    await playground.tab("Share and export");
    await page.waitForFunction(() => document.querySelector("#link")?.value.includes("#/"));
    await page.locator("#download-trace").click();
    await page.locator('[data-card="trace"] .remark').filter({ hasText: "has been made" }).waitFor();
  },
};

for (const [look, options] of Object.entries(LOOKS)) {
  for (const [view, show] of Object.entries(VIEWS)) {
    test(`${view} fits its window and is pictured: ${look}`, () =>
      kit.withPage(async (playground, page) => {
        await show(playground, page);
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        assert.equal(overflow, 0, "nothing sticks out sideways");
        assert.deepEqual(await nameless(page), [], "every control has a name");
        if (view === "explore" || view === "compare") {
          // What is out of sight is drawn at leisure: a picture of all of it needs a window as tall.
          const height = await page.evaluate(() => document.documentElement.scrollHeight);
          await page.setViewportSize({ width: page.viewportSize().width, height });
          await playground.settles();
        }
        await page.screenshot({ path: `${ARTIFACTS}playground-${view}-${look}.png`, fullPage: view !== "why" && view !== "picker" && view !== "lesson" });
      }, options));
  }
}

/** Views whose texts are measured, with how each comes to show them and how many there are at least. */
const TEXTS = {
  watch: {
    show: async (playground, page) => {
      await playground.tab("Watch");
      // Without motion it does not play by itself.
      await page.locator(".watch").getByRole("button", { name: "Play" }).click();
      await page.waitForFunction(() => Number(document.querySelector(".watch").dataset.at) > 700);
    },
    least: 30,
  },
  compare: { show: VIEWS.compare, least: 100 },
  lessons: { show: VIEWS.tour, least: 20 },
  machines: { show: VIEWS.machines, least: 20 },
  "a lesson": { show: VIEWS.lesson, least: 100 },
};

for (const colorScheme of ["light", "dark"]) {
  for (const [view, { show, least }] of Object.entries(TEXTS)) {
    test(`every text of ${view} can be read: ${colorScheme}`, (t) =>
      kit.withPage(
        async (playground, page) => {
          await show(playground, page);
          const texts = await assertReadable(page, "body");
          t.diagnostic(`${texts} texts`);
          assert.ok(texts >= least, `${texts} texts`);
        },
        { ...WIDE, colorScheme, reducedMotion: "reduce" },
      ));
  }
}

test("controls stay in their cards, however long the names of groups are", () =>
  kit.withPage(
    async (playground, page) => {
      for (const scenario of ["two-harbours", "noisy-neighbour", "storm", "cooldown/both"]) {
        await playground.choose(scenario);
        const outside = await page.locator("#controls").evaluate((card) => {
          const { right } = card.getBoundingClientRect();
          return [...card.querySelectorAll("input, select, span")].filter((one) => one.checkVisibility() && one.getBoundingClientRect().right > right).map((one) => one.outerHTML);
        });
        assert.deepEqual(outside, [], scenario);
      }
    },
    WIDE,
  ));

/** Controls in sight that a screen reader could not name. */
function nameless(page) {
  return page.evaluate(() =>
    [...document.querySelectorAll("button, input, select, textarea, [role=img], [role=progressbar], [role=dialog]")]
      .filter((one) => one.checkVisibility() && !one.closest("[aria-hidden=true]"))
      .filter((one) => !(one.getAttribute("aria-label") || one.getAttribute("aria-labelledby") || one.textContent.trim() || one.labels?.[0]?.textContent.trim() || one.title))
      .map((one) => one.outerHTML.slice(0, 120)),
  );
}

test("a person who wants no motion gets none", () =>
  kit.withPage(
    async (playground, page) => {
      await playground.tab("Lessons");
      await page.getByRole("button", { name: /^Start lesson 2/ }).click();
      assert.equal(await page.locator(".spot").first().evaluate((one) => getComputedStyle(one).animationName), "none");
    },
    { reducedMotion: "reduce" },
  ));

test("every scenario decides the same in wasm as natively, to the last bit", async () => {
  const told = (await outputOf("digests")).trim().split("\n");
  const own = told.map((line) => {
    const [name, seed] = line.split(" ");
    return `${name} ${seed} ${kit.replay(name, Number(seed)).digest()}`;
  });
  assert.ok(told.length > 10);
  assert.deepEqual(own, told);
});

test("the exported page runs in a folder of any static host", async () => {
  await exportSite(`${ARTIFACTS}site`);
  const host = await serveFolder(`${ARTIFACTS}site`, { prefix: "/some/folder/" });
  const playground = await PlaygroundPage.open(kit.browser, host.url);
  await playground.choose("cold-ramp");
  await playground.playTo(500);
  await playground.close();
  await host.stop();
});

test("the sources agree with the generated types, and these say nothing is any", async () => {
  const app = fileURLToPath(new URL("../../web-demo/app/", import.meta.url));
  const checked = await promisify(execFile)("npm", ["run", "--silent", "check"], { cwd: app }).catch((failed) => failed);
  assert.equal(checked.code, undefined, `the type checker is content: ${checked.stdout}`);
  const types = await readFile(`${app}src/pkg/tidegate_playground.d.ts`, "utf8");
  // What follows is the generated loader's own, not ours.
  const [ours] = types.split("export type InitInput");
  assert.doesNotMatch(ours.replace(/\/\*[^]*?\*\//g, ""), /\bany\b/);
});
