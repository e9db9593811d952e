// The scenario: picked from all suites, or edited as TOML.
import assert from "node:assert/strict";
import { test } from "node:test";
import { playground } from "./harness.mjs";

const kit = playground();
const field = (page) => page.getByRole("combobox", { name: "Scenario" }).first();

test("the picker offers every scenario of every suite, by suite", () =>
  kit.withPage(async (playground, page) => {
    await field(page).click();
    const groups = await page.locator("#picker-list [role=group]").evaluateAll((groups) => groups.map((group) => [...group.querySelectorAll("[role=option]")].map((option) => option.dataset.name)));
    const suites = [...new Set(kit.core.scenarios().map(({ suite }) => suite))];
    assert.deepEqual(groups, suites.map((suite) => kit.core.scenarios().filter((one) => one.suite === suite).map(({ name }) => name)));
  }));

test("typing narrows it down, arrow keys and Enter choose, Escape leaves it", () =>
  kit.withPage(async (playground, page) => {
    await field(page).focus();
    await page.keyboard.type("cold ramp");
    const options = page.locator("#picker-list [role=option]");
    assert.ok((await options.count()) >= 1);
    for (const name of await options.evaluateAll((all) => all.map((one) => `${one.dataset.name} ${one.textContent}`))) assert.match(name.toLowerCase(), /cold/);
    await page.keyboard.press("Escape");
    assert.equal(await field(page).inputValue(), kit.core.scenarios()[0].title, "nothing was chosen");
    await field(page).fill("outage");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowUp");
    await page.keyboard.press("Enter");
    const chosen = kit.core.scenarios().find(({ name }) => name === "outage");
    await page.locator("#description").filter({ hasText: chosen.description }).waitFor();
    assert.equal(await field(page).inputValue(), chosen.title);
    const names = kit.core.scenario("outage").models.map(({ name }) => name);
    await page.waitForFunction((names) => [...document.querySelectorAll("#explore .provider")].length === names.length, names);
  }));

test("an edited scenario runs; a mistake is shown at its line and changes nothing", () =>
  kit.withPage(async (playground, page) => {
    const written = kit.text();
    const line = written.split("\n").findIndex((one) => one.startsWith("rows =")) + 1;
    await playground.openText();
    await playground.rewrite(written.replace(/^rows = \d+$/m, 'rows = "many"'));
    await page.getByRole("button", { name: "Apply" }).click();
    await page.locator("#toml-state").filter({ hasText: `line ${line}, column` }).waitFor();
    await page.locator(".cm-lintRange-error").filter({ hasText: '"many"' }).waitFor();
    await page.locator(".cm-lint-marker-error").waitFor();
    await page.keyboard.type("90");
    await page.locator("#toml").getByText("rows = 90", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Revert" }).click();
    assert.equal(await page.getByRole("button", { name: "Apply" }).isDisabled(), true);
    await playground.rewrite(written.replace(/^rows = \d+$/m, "rows = 120"));
    await page.keyboard.press("Control+Enter");
    await page.locator("#toml-state").filter({ hasText: "It runs." }).waitFor();
    assert.match(await field(page).inputValue(), /\(edited\)$/);
    await playground.tab("Explore");
    await playground.setSpeed(4);
    await playground.play.click();
    await playground.reaches("Finished");
    const expected = kit.replay({ ...kit.core.scenario(kit.first()), rows: 120 });
    assert.equal(await page.locator("#digest").textContent(), expected.digest());
    assert.equal(await page.locator("#digest-command").textContent(), "tidegate simulate FILE --seed 1");
  }));

test("a name that is nearly right is told as it was meant, and corrected with a click", () =>
  kit.withPage(async (playground, page) => {
    await playground.openText();
    await playground.rewrite(kit.text().replace("max_parallel =", "max_paralel ="));
    await page.locator(".cm-lintRange-error").hover();
    const tip = page.locator(".cm-tooltip").filter({ hasText: "did you mean max_parallel?" });
    await tip.getByRole("button", { name: "Change to max_parallel" }).click();
    await page.locator(".cm-lintRange-error").waitFor({ state: "detached" });
    assert.equal(await page.getByRole("button", { name: "Apply" }).isDisabled(), true, "the text is as it was");
  }));

test("keys and values are completed by the schema of scenarios", () =>
  kit.withPage(async (playground, page) => {
    await playground.openText();
    const options = () => page.locator(".cm-tooltip-autocomplete [role=option]").allTextContents();
    const offered = (text) => page.locator(".cm-tooltip-autocomplete [role=option]").filter({ hasText: text }).first();
    await playground.rewrite("rows = 10\n");
    await page.keyboard.type("row_gr");
    await offered("row_group_size").waitFor();
    await page.keyboard.press("Escape");
    await playground.rewrite('[[models]]\nname = "one"\n');
    await page.keyboard.type("max_p");
    await offered("max_parallel").waitFor();
    assert.ok(!(await options()).some((one) => one.includes("row_group_size")), "no key of another table");
    await offered("max_parallel").click();
    await page.locator("#toml").getByText("max_parallel = ").waitFor();
    await playground.rewrite('[[models]]\nprovider = { capacity = { shape = ');
    await page.keyboard.press("Control+Space");
    await offered('"warm_up"').waitFor();
    await playground.rewrite("[models.provider.cap");
    await page.keyboard.press("Control+Space");
    await offered("capacity").click();
    await page.locator("#toml").getByText("[models.provider.capacity").waitFor();
  }));

test("a scenario that reads well and cannot run is refused, and the old one stays", () =>
  kit.withPage(async (playground, page) => {
    await playground.openText();
    await playground.rewrite(kit.text().replace("max_parallel = 32", "max_parallel = 0"));
    await page.getByRole("button", { name: "Apply" }).click();
    await page.locator("#toml-state.problem").filter({ hasText: "max_parallel" }).waitFor();
    await playground.tab("Explore");
    await playground.playTo(500);
    assert.equal((await playground.linked()).setUp.scenario, kit.first());
  }));

test("what reads and writes files may not come: the page says so, and tries again", () =>
  kit.withPage(
    async (playground, page) => {
      const file = (name) => `**/assets/tidegate_files${name}`;
      const download = page.locator("#download-toml");
      const text = "It could not be made: What reads and writes files could not be loaded: the server does not answer, or has a newer version.";
      const refused = page.locator('[data-card="toml"]').getByRole("status").filter({ hasText: text });
      playground.isOffline = true;
      await playground.tab("Share and export");
      for (const name of ["_bg-*.wasm", "-*.js"]) {
        await page.route(file(name), (route) => route.abort());
        await download.click();
        await refused.waitFor();
        await page.unroute(file(name));
        await page.reload();
        await playground.isUsable();
      }
      playground.isOffline = false;
      await playground.openText();
    },
    { serviceWorkers: "block" },
  ));
