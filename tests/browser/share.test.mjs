// Share and export: the link brings everything back, and every download is what it says.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { ARTIFACTS, outputOf } from "./demo.mjs";
import { playground, shown } from "./harness.mjs";
import { linkTo } from "./playground-page.mjs";

const kit = playground();

const tidegate = (...options) => outputOf("tidegate", ...options);

/** Changes something, and goes on for a while. */
async function change(playground, page) {
  await playground.playTo(1_500);
  await page.getByRole("button", { name: "Drop to zero" }).first().click();
  await playground.playTo(2_500);
  await page.getByRole("button", { name: /Give capacity back/ }).first().click();
  await page.locator("#controls").getByLabel("Cap", { exact: true }).first().fill("20");
  await page.locator("#controls").getByLabel("Cap", { exact: true }).first().blur();
  await playground.playTo(4_000);
}

test("a link brings everything back in a new page: scenario, seed, changes, position, speed", () =>
  kit.withPage(async (playground, page) => {
    await page.locator("#seed").fill("42");
    await page.locator("#seed").blur();
    await playground.reaches("Ready");
    await change(playground, page);
    const sample = await playground.sample();
    const { address, setUp } = await playground.linked();
    assert.deepEqual([setUp.seed, setUp.changes[0].map(({ set }) => set)], [42, ["capacity", "capacity", "max_parallel"]]);
    await kit.withPage(
      async (other) => {
        await other.until("virtual-time", sample.at);
        assert.deepEqual(await other.sample(), sample);
        assert.equal(await other.page.locator("#seed").inputValue(), "42");
        assert.equal(await other.speed.inputValue(), await playground.speed.inputValue());
        assert.equal(await other.page.locator("#controls").getByLabel("Cap", { exact: true }).first().inputValue(), "20");
      },
      { hash: new URL(address).hash },
    );
  }));

test("a link of a comparison brings both sides back, on its view", () =>
  kit.withPage(async (playground, page) => {
    await playground.compare("AIMD, Tide", 3_000);
    const cells = (of) => of.locator("#compare tbody td").evaluateAll((all) => all.map((cell) => cell.dataset.value));
    const before = await cells(page);
    const { address } = await playground.linked();
    assert.match(address, /#\/compare\//);
    await kit.withPage(
      async (other) => {
        await other.page.waitForFunction((time) => document.querySelector('tr[data-figure="time"] td')?.dataset.value === time, before[0]);
        await other.stands();
        assert.deepEqual(await cells(other.page), before);
        assert.equal(await other.page.getByRole("tab", { selected: true }).textContent(), "Compare");
      },
      { hash: new URL(address).hash },
    );
  }));

test("a link is called by what it leads to: the run in Explore, or the comparison", () =>
  kit.withPage(async (playground, page) => {
    const named = async (view, title, address) => {
      await playground.tab(view);
      await playground.tab("Share and export");
      await page.getByRole("region", { name: title, exact: true }).waitFor();
      await page.getByRole("heading", { name: title, exact: true }).waitFor();
      assert.match((await playground.linked()).address, address, view);
    };
    for (const view of ["Explore", "Watch", "Machines"]) await named(view, "A link to the run in Explore", /#\/explore\//);
    for (const view of ["Compare", "Watch"]) await named(view, "A link to the comparison", /#\/compare\//);
  }));

test("an edited scenario travels in its link", () =>
  kit.withPage(async (playground, page) => {
    await playground.openText();
    await playground.rewrite(kit.text().replace(/^rows = \d+$/m, "rows = 77"));
    await page.getByRole("button", { name: "Apply" }).click();
    await page.locator("#toml-state").filter({ hasText: "It runs." }).waitFor();
    const { address } = await playground.linked();
    await kit.withPage(
      async (other) => {
        await other.page.waitForFunction(() => document.querySelector('#explore [data-figure="rows_total"]')?.dataset.value === "77");
        await other.stands();
        assert.match(await other.page.getByRole("combobox", { name: "Scenario" }).first().inputValue(), /\(edited\)$/);
      },
      { hash: new URL(address).hash },
    );
  }));

test("a damaged link says so, and the usual scenario is shown", async () => {
  const wish = (rest) => linkTo(`{"v":2,"scenario":"cold-ramp","seed":1,"mode":"two","speed":0.3,${rest}}`);
  const beyond = ['"at":1e999', '"at":1e300', '"at":-1', '"at":"soon"', '"choices":[{"algorithm":"none"}]', '"choices":[{"fixed":null}]', '"choices":[{"toString":1}]'].map(wish);
  for (const hash of ["#/dashboard/eJyrVipTsjLUUSpOTs1LLMrMV7JSKslMSVUC", "#/dashboard/nonsense!", "#/compare/eJwDAAAAAAE", ...beyond]) {
    await kit.withPage(
      async (playground, page) => {
        await page.getByRole("alert").filter({ hasText: /damaged.*usual scenario/ }).waitFor();
        assert.equal(await playground.phase(), "Ready");
        assert.equal(await page.locator("#picker input").inputValue(), kit.core.scenarios()[0].title);
      },
      { hash },
    );
  }
});

test("a link of another version of the page says so, whatever it holds", () =>
  kit.withPage(
    async (_, page) => {
      await page.getByRole("alert").filter({ hasText: /another version.*usual scenario/ }).waitFor();
    },
    { hash: linkTo('{"v":1,"scenario":{"models":[{"name":"one","request":{"ramp":1000000000}}]},"seed":1,"mode":"one","at":0,"speed":0.3}') },
  ));

test("a link to a scenario that there is not says which", () =>
  kit.withPage(
    async (_, page) => {
      await page.getByRole("alert").filter({ hasText: /^\s*No scenario is called "ebb"\. The usual scenario is shown instead\.\s*(Close)?\s*$/ }).waitFor();
    },
    { hash: linkTo('{"v":2,"scenario":"ebb","seed":1,"mode":"one","at":0,"speed":0.3}') },
  ));

test("a link that is not followed for want of a file is followed when the page is loaded again", () =>
  kit.withPage(
    async (playground, page) => {
      const hash = linkTo('{"v":2,"scenario":"cold-ramp","seed":7,"mode":"one","at":0,"speed":0.3}');
      const files = "**/assets/tidegate_scenario_texts-*.js";
      await page.goto("about:blank");
      await page.route(files, (route) => route.abort());
      playground.isOffline = true;
      await page.goto(new URL(hash, kit.server.url).href);
      await page.getByRole("alert").filter({ hasText: /does not answer.*usual scenario/ }).waitFor();
      assert.equal(await playground.phase(), "Ready");
      assert.equal(new URL(page.url()).hash, hash);
      playground.isOffline = false;
      await page.unroute(files);
      await page.reload();
      await page.waitForFunction(() => document.querySelector("#seed")?.value === "7");
      await page.waitForFunction(() => location.hash === "#/explore");
    },
    { serviceWorkers: "block" },
  ));

test("the link follows what a person does while it is in view", () =>
  kit.withPage(async (playground, page) => {
    await playground.playTo(3_000);
    const { address, setUp } = await playground.linked();
    await playground.tab("Share and export");
    await page.keyboard.press("Escape");
    await playground.seek.focus();
    await page.keyboard.press("Home");
    await page.waitForFunction((address) => document.querySelector("#link")?.value !== address, address);
    const back = (await playground.linked()).setUp;
    assert.deepEqual([back.at, back.extent], [0, setUp.at]);
  }));

test("a tab has an address of its own", () =>
  kit.withPage(
    async (playground, page) => {
      assert.equal(await page.getByRole("tab", { selected: true }).textContent(), "Scenario");
      await page.getByRole("tab", { selected: true }).focus();
      await page.keyboard.press("ArrowRight");
      assert.match(page.url(), /#\/lessons$/);
      await page.keyboard.press("Home");
      assert.equal(await page.getByRole("tab", { selected: true }).textContent(), "Watch");
      assert.equal(await page.locator("#watch").isVisible(), true);
    },
    { hash: "#/scenario" },
  ));

test("the downloads are a trace, a log that replays, a scenario that tidegate simulates, and the core's results", () =>
  kit.withPage(async (playground, page) => {
    await change(playground, page);
    const { setUp } = await playground.linked();
    const scenario = { ...kit.core.scenario(setUp.scenario), changes: setUp.changes[0] };
    const expected = kit.replay(scenario, 1, setUp.at);
    await playground.tab("Share and export");
    const text = async (id, ending) => {
      const download = await playground.download(id);
      assert.ok(download.suggestedFilename().endsWith(ending), download.suggestedFilename());
      const path = `${ARTIFACTS}${download.suggestedFilename()}`;
      await download.saveAs(path);
      return { path, text: await readFile(path, "utf8") };
    };
    const results = JSON.parse((await text("results", "-results.json")).text);
    assert.deepEqual(results, JSON.parse(expected.results()));
    const trace = JSON.parse((await text("trace", "-trace.json")).text);
    const events = Array.isArray(trace) ? trace : trace.traceEvents;
    assert.ok(events.length > 100 && events.every(({ ph }) => typeof ph === "string"), "a trace of events");
    const log = await text("decisions", "-decisions.jsonl");
    const lines = log.text.trim().split("\n");
    for (const line of lines) JSON.parse(line);
    const replayed = kit.files.replayDecisions(log.text);
    assert.ok(replayed && lines.length > 100, "the log replays");
    const { digest, name } = await page.locator('[data-card="decisions"] .remark').evaluate(({ textContent }) => /^(?<name>\S+) has been made\. tidegate replay prints: decision digest (?<digest>.*)$/.exec(textContent).groups);
    assert.ok(log.path.endsWith(name));
    assert.ok((await tidegate("replay", log.path)).includes(`decision digest ${digest}\nevery decision is the same`), "a person can match the digests");
    const toml = await text("toml", ".toml");
    assert.deepEqual(kit.files.readScenario(toml.text).changes, scenario.changes);
    const told = JSON.parse(await tidegate("simulate", toml.path, "--seed", "1", "--json"));
    assert.equal(told.digest, kit.replay(scenario).digest(), "tidegate decides the same to the end");
    const native = `${ARTIFACTS}native-trace.json`;
    await tidegate("simulate", toml.path, "--seed", "1", "--json", "--trace", native);
    const exporter = new kit.files.Exporter("trace", scenario, 1);
    let whole = "";
    for (let part = exporter.next(4_096); part !== undefined; part = exporter.next(4_096)) whole += part;
    exporter.free();
    assert.ok(whole === (await readFile(native, "utf8")), "the trace of the whole run is tidegate's to the letter");
    assert.deepEqual(shown(expected.sample()), await playground.sample());
  }));
