// What a cold load transfers, and the page without its server.
import assert from "node:assert/strict";
import { createServer, connect } from "node:net";
import { after, before, test } from "node:test";
import { gzipSync } from "node:zlib";
import { startBrowser, startServer } from "./demo.mjs";
import { gate, until } from "../patience.mjs";
import { PlaygroundPage } from "./playground-page.mjs";

/** The most that a cold load may transfer, compressed, in bytes, until the page can be used. */
const BUDGET = 498 * 1024;
/** The same without the compiled module, whose own size is checked beside those of the package. */
const BUDGET_OF_PAGE = 78 * 1024;

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
  const module = await fetch(new URL("pkg/tidegate_playground_bg.wasm", server.url), { headers: { "accept-encoding": "gzip" } });
  const plain = Buffer.from(await module.arrayBuffer());
  const compiled = gzipSync(plain, { level: 9 }).length;
  console.log(`first load: ${(first / 1024).toFixed(1)} KiB, of which the module is ${(compiled / 1024).toFixed(1)} KiB`);
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
  const loads = () => playground.page.evaluate(() => performance.getEntriesByType("resource").some(({ name }) => name.endsWith("tidegate_scenario_texts.js")));
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
  await playground.tab("Scenario");
  await page.waitForFunction(() => document.querySelector("#toml")?.value.includes("rows ="));
  await playground.tab("Compare");
  await page.getByRole("button", { name: "Fixed limit, AIMD" }).click();
  await playground.reaches("Ready");
  await playground.tab("Tour");
  await page.getByRole("button", { name: /^Start lesson 1/ }).waitFor();
  const { address } = await playground.linked();
  await page.goto(address);
  await page.reload();
  await playground.isUsable();
  await page.goto(new URL("index.html", relay.url).href);
  await playground.isUsable();
  await playground.close();
});

/** A page without a copy of its own, whose requests for one view are answered like this. `use` is given, too, what ends that. */
async function withHeldUp(view, answer, use) {
  const playground = await PlaygroundPage.open(browser, server.url, { serviceWorkers: "block" });
  const requests = `**/${view}/*`;
  await playground.page.route(requests, answer);
  // From then on nothing may fail any more.
  const mend = async () => {
    await playground.page.unroute(requests);
    playground.isOffline = false;
  };
  await use(playground, playground.page, mend);
  await playground.close();
}

test("a view that cannot be fetched says so, and comes when it is asked for again", () => {
  /** Requests of the view's module, and those of the second try, which wait until the test has looked. */
  const [tries, waiting] = [[], []];
  const answer = (route) => {
    if (route.request().method() !== "GET") return route.abort();
    const { pathname, search } = new URL(route.request().url());
    if (pathname.endsWith("/tour.js")) tries.push(search);
    return tries.length > 1 ? waiting.push(route) : route.abort();
  };
  return withHeldUp("tour", answer, async (playground, page, mend) => {
    playground.isOffline = true;
    const panel = page.getByRole("tabpanel", { name: "Tour" });
    const refused = panel.and(page.locator(":not([aria-busy])")).getByRole("status").filter({ hasText: "Tour could not be loaded: the server does not answer." });
    const again = panel.getByRole("button", { name: "Try again" });
    await playground.tab("Tour");
    await refused.waitFor();
    await again.click();
    await panel.and(page.locator('[aria-busy="true"]')).waitFor();
    await until(() => waiting.length, (requests) => requests === 2);
    // Whoever is impatient does not ask twice.
    await again.focus();
    await page.keyboard.press("Enter");
    assert.deepEqual(tries, ["", "?again=1"]);
    await Promise.all(waiting.map((route) => route.abort()));
    await refused.waitFor();
    await mend();
    const third = page.waitForRequest("**/tour/tour.js?again=2");
    await again.focus();
    await page.keyboard.press("Enter");
    await third;
    await panel.getByRole("button", { name: /^Start lesson 1/ }).waitFor();
    assert.deepEqual(tries, ["", "?again=1"], "the third was not held up");
    assert.equal(await again.count(), 0);
    assert.ok(await panel.evaluate((one) => one === document.activeElement), "the focus is not lost with the button");
    await playground.tab("Stage");
    await playground.playTo(500);
  });
});

test("a view that comes late says so, and shows runs that stand still already", () => {
  const held = gate();
  return withHeldUp("compare", (route) => held.wait().then(() => route.continue()), async (playground, page) => {
    await playground.playTo(1_000);
    await page.getByRole("tab", { name: "Compare" }).focus();
    await page.keyboard.press("Enter");
    const panel = page.getByRole("tabpanel", { name: "Compare" });
    await panel.getByRole("status").filter({ hasText: "Compare is being loaded." }).waitFor();
    assert.equal(await panel.getAttribute("aria-busy"), "true");
    held.open();
    await panel.locator(".half .stage").nth(1).waitFor();
    await playground.stands();
    await page.locator("#announcer").filter({ hasText: "Compare is there." }).waitFor();
    await page.locator('tr[data-figure="rows"] td[data-value="0"]').first().waitFor();
    assert.equal(await panel.getAttribute("aria-busy"), null);
    assert.ok(await page.getByRole("tab", { name: "Compare" }).evaluate((one) => one === document.activeElement), "the focus stays where it was");
  });
});

/** A page whose Tour is not as it should be: what its panel says then. The page is the same until it is loaded again. */
async function tourThatFails(path, answer, says) {
  const playground = await PlaygroundPage.open(browser, server.url, { serviceWorkers: "block" });
  const { page } = playground;
  // The browser says so, too.
  playground.isOffline = true;
  await page.route(path, answer);
  if (path.includes("worker.js")) await page.reload();
  await playground.tab("Tour");
  const panel = page.getByRole("tabpanel", { name: "Tour" });
  await panel.getByRole("status").filter({ hasText: says }).waitFor();
  await playground.tab("Take away");
  await playground.tab("Tour");
  await page.unroute(path);
  assert.equal(await page.getByText("Try again").locator("visible=true").count(), 0);
  const complaints = playground.complaints.splice(0);
  await panel.getByRole("button", { name: "Load the page again" }).click();
  await panel.getByRole("button", { name: /^Start lesson 1/ }).waitFor();
  await playground.close();
  return complaints;
}

const script = (body) => (route) => route.fulfill({ contentType: "text/javascript", body });

test("a view of another version of the page asks for the page to be loaded again", async () => {
  const says = /^Tour could not be loaded: the server has a newer version\. Load the page again\./;
  assert.deepEqual(await tourThatFails("**/tour/tour.js*", script('import { gone } from "../app.parts.js";'), says), []);
});

test("a view whose file is gone, or that of something it needs, says so, and asks for the page to be loaded again", async () => {
  const says = /^Tour could not be loaded: its file is not there any more, most likely because a newer version was installed\. Load the page again\. The rest of the page goes on\.$/;
  for (const file of ["tour.js", "tour.css", "lessons.js"]) {
    const complaints = await tourThatFails(`**/tour/${file}*`, (route) => route.fulfill({ status: 404 }), says);
    assert.ok(complaints.length > 0 && complaints.every((one) => one.startsWith("answer 404")), complaints.join("; "));
  }
  // A host that has a page of its own for what is not there.
  const html = (route) => route.fulfill({ contentType: "text/html", body: "<!doctype html><title>Nothing here</title>" });
  assert.deepEqual(await tourThatFails("**/tour/tour.js*", html, says), []);
});

test("a view that the server has an error for says so, and comes when it is asked for again", () =>
  withHeldUp("tour", (route) => route.fulfill({ status: 500, contentType: "text/html", body: "<!doctype html><title>500</title>" }), async (playground, page, mend) => {
    playground.isOffline = true;
    await playground.tab("Tour");
    const panel = page.getByRole("tabpanel", { name: "Tour" });
    await panel.getByRole("status").filter({ hasText: /^Tour could not be loaded: the server answers with an error \(500\)\. The rest of the page goes on\.$/ }).waitFor();
    assert.ok(playground.complaints.splice(0).every((one) => one.startsWith("answer 500")));
    await mend();
    await panel.getByRole("button", { name: "Try again" }).click();
    await panel.getByRole("button", { name: /^Start lesson 1/ }).waitFor();
  }));

test("a view that fails as it opens says so, and is not opened twice", async () => {
  const complaints = await tourThatFails("**/tour/tour.js*", script('export const open = () => { throw new Error("not so"); };'), /^Tour cannot be shown/);
  assert.deepEqual(complaints, ["page error: not so"]);
});

test("a view says so where the scheduler has failed before", async () => {
  assert.deepEqual(await tourThatFails("**/worker.js", (route) => route.abort(), /^Tour cannot be shown\./), []);
});

test("a copy that the browser has is not sent again", async () => {
  const answer = await fetch(new URL("app.js", server.url));
  await answer.arrayBuffer();
  const again = await fetch(new URL("app.js", server.url), { headers: { "if-none-match": answer.headers.get("etag") } });
  assert.equal(again.status, 304);
});
