// What every test of the playground begins with: the server, the browser, and the core in this process.
import { mkdir } from "node:fs/promises";
import { after, before } from "node:test";
import { ARTIFACTS, loadCore, loadFiles, loadMachines, startBrowser, startServer } from "./demo.mjs";
import { PlaygroundPage } from "./playground-page.mjs";

/** Longer than any run lasts, in virtual ms. */
const FOREVER = 24 * 3600e3;

/** Sets up the tests of one file. */
export function playground() {
  const kit = {
    server: undefined,
    browser: undefined,
    core: undefined,
    files: undefined,
    machines: undefined,
    /** Opens the page for one test; it must have run without a complaint in the end. */
    async withPage(use, options) {
      const page = await PlaygroundPage.open(kit.browser, kit.server.url, options);
      await use(page, page.page);
      await page.close();
    },
    /** The core's own run of a scenario, up to an instant in virtual ms. */
    replay(scenario, seed = 1, until = FOREVER) {
      const run = new kit.core.Playground(typeof scenario === "string" ? kit.core.scenario(scenario) : scenario, seed);
      while (!run.advanceTo(until, 10_000));
      return run;
    },
    first: () => kit.core.scenarios()[0].name,
    /** The text of the scenario that the page opens with. */
    text: () => kit.files.writeScenario(kit.core.scenario(kit.first())),
  };
  before(async () => {
    await mkdir(ARTIFACTS, { recursive: true });
    kit.server = await startServer();
    kit.core = await loadCore();
    kit.files = await loadFiles();
    kit.machines = await loadMachines();
    kit.browser = await startBrowser();
  });
  after(async () => {
    await kit.browser?.close();
    await kit.server?.stop();
  });
  return kit;
}

/** The part of the core's sample that the page shows. */
export function shown({ at, steps, queue_depth, running, rows_done, rows_dropped, providers }) {
  return {
    at,
    steps,
    queue_depth,
    running,
    rows_dropped,
    refused: providers.reduce((sum, { refused }) => sum + refused, 0),
    rows_done,
    providers: providers.map(({ limit, in_flight, capacity, waiting, refused }) => ({ limit, in_flight, capacity, waiting, refused })),
  };
}
