// What a cold load transfers, and the page without its server.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer, connect } from "node:net";
import { after, before, test } from "node:test";
import { gzipSync } from "node:zlib";
import { BINDINGS, startBrowser, startServer } from "./demo.mjs";
import { PlaygroundPage } from "./playground-page.mjs";

/** How much more than recorded a cold load may transfer. */
const TOLERANCE = 1.05;
/**
 * What a cold load transferred, compressed, in bytes, until the page could be used, and the same without the compiled module,
 * as `coldLoad` printed them.
 */
const { firstLoad } = JSON.parse(await readFile(new URL("../package/sizes.json", import.meta.url), "utf8"));
const BUDGET = TOLERANCE * firstLoad.all;
const BUDGET_OF_PAGE = TOLERANCE * firstLoad.withoutModule;

let server;
let browser;

before(async () => {
  server = await startServer();
  browser = await startBrowser();
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

/** Stands between browser and server and counts what passes. */
async function counting(url) {
  const count = { bytes: 0 };
  const { port } = new URL(url);
  const sockets = new Set();
  const relay = createServer((client) => {
    const upstream = connect(Number(port), "127.0.0.1");
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.unref().on("error", () => {}).on("close", () => sockets.delete(socket));
    }
    upstream.on("data", (data) => (count.bytes += data.length));
    client.pipe(upstream).pipe(client);
  });
  // A test that fails must not wait for it.
  relay.unref();
  await new Promise((resolve) => relay.listen(0, "127.0.0.1", resolve));
  const stop = () => {
    for (const socket of sockets) socket.destroy();
    return new Promise((resolve) => relay.close(resolve));
  };
  return { url: `http://127.0.0.1:${relay.address().port}/`, count, stop };
}

/** What a cold load transfers, counted at the socket, headers and all. */
async function coldLoad() {
  const relay = await counting(server.url);
  // The copy for offline use is taken afterwards, from what is loaded already and the rest: it is no part of this.
  const playground = await PlaygroundPage.open(browser, relay.url, { serviceWorkers: "block" });
  await playground.page.waitForLoadState("networkidle");
  const first = relay.count.bytes;
  await playground.close();
  await relay.stop();
  const plain = await readFile(`${BINDINGS}tidegate_playground_bg.wasm`);
  const compiled = gzipSync(plain, { level: 9 }).length;
  console.log(`first load: ${JSON.stringify({ all: first, withoutModule: first - compiled })}, in bytes; recorded: ${JSON.stringify(firstLoad)}`);
  return { first, compiled };
}

test("the page without its compiled module stays within its budget", async () => {
  const { first, compiled } = await coldLoad();
  assert.ok(first - compiled <= BUDGET_OF_PAGE, `${first - compiled} bytes, the budget is ${BUDGET_OF_PAGE}`);
});

test("a cold load stays within its budget", async () => {
  const { first } = await coldLoad();
  assert.ok(first <= BUDGET, `${first} bytes, the budget is ${BUDGET}`);
});

test("what scenarios are made of is loaded once somebody wants another one than the first", async () => {
  const playground = await PlaygroundPage.open(browser, server.url);
  const loads = () => playground.page.evaluate(() => performance.getEntriesByType("resource").some(({ name }) => name.includes("tidegate_scenario_texts")));
  assert.equal(await loads(), false);
  await playground.choose("cold-ramp");
  await playground.page.locator("#description").filter({ hasText: "ramp" }).waitFor();
  assert.equal(await loads(), true);
  await playground.close();
});

test("once loaded it opens and runs without its server", async () => {
  const relay = await counting(server.url);
  const playground = await PlaygroundPage.open(browser, relay.url);
  const { page } = playground;
  await page.locator("#offline").filter({ hasText: "works without a network" }).waitFor();
  console.log(`with the copy for offline use: ${(relay.count.bytes / 1024).toFixed(1)} KiB`);
  await relay.stop();
  playground.isOffline = true;
  await page.reload();
  await playground.isUsable();
  await playground.choose("cold-ramp");
  await playground.setSpeed(4);
  await playground.play.click();
  await playground.reaches("Finished");
  // Views that were never opened before.
  await playground.openText();
  await playground.tab("Compare");
  await page.getByRole("button", { name: "Fixed limit, AIMD" }).click();
  await playground.reaches("Ready");
  await playground.tab("Lessons");
  await page.getByRole("button", { name: /^Start lesson 1:/ }).waitFor();
  const { address } = await playground.linked();
  await page.goto(address);
  await page.reload();
  await playground.isUsable();
  await page.goto(new URL("index.html#/explore", relay.url).href);
  await playground.isUsable();
  await playground.close();
});

test("a scenario whose files do not come says so, and comes when it is asked for again", async () => {
  const playground = await PlaygroundPage.open(browser, server.url, { serviceWorkers: "block" });
  const { page } = playground;
  playground.isOffline = true;
  const files = "**/assets/tidegate_scenario_texts-*.js";
  await page.route(files, (route) => route.abort());
  await playground.choose("cold-ramp", { isHeldUp: true });
  await page.locator("#notice-text").filter({ hasText: "The scenario could not be loaded: the server does not answer" }).waitFor();
  await page.unroute(files);
  await playground.choose("cold-ramp");
  await playground.playTo(500);
  await playground.close();
});

test("a scheduler that cannot be started says so", async () => {
  const playground = await PlaygroundPage.open(browser, server.url, { serviceWorkers: "block" });
  const { page } = playground;
  playground.isOffline = true;
  await page.route("**/assets/worker-*.js", (route) => route.abort());
  await page.reload();
  await page.locator("#failure-text").filter({ hasText: "the scheduler's worker failed" }).waitFor();
  await page.unroute("**/assets/worker-*.js");
  playground.complaints.splice(0);
  await page.getByRole("button", { name: "Start again" }).click();
  await playground.isUsable();
  await playground.close();
});

test("a file that is not there is not found, and every answer isolates the page", async () => {
  const missing = await fetch(new URL("assets/nothing.js", server.url));
  assert.equal(missing.status, 404);
  for (const answer of [missing, await fetch(server.url)]) {
    assert.equal(answer.headers.get("cross-origin-embedder-policy"), "require-corp");
    assert.match(answer.headers.get("content-security-policy"), /default-src 'none'/);
  }
});

test("a copy that the browser has is not sent again", async () => {
  const answer = await fetch(server.url);
  await answer.arrayBuffer();
  const again = await fetch(server.url, { headers: { "if-modified-since": answer.headers.get("last-modified") } });
  assert.equal(again.status, 304);
});
