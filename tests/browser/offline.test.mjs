// What a cold load transfers, and the page without its server.
import assert from "node:assert/strict";
import { createServer, connect } from "node:net";
import { after, before, test } from "node:test";
import { startBrowser, startServer } from "./demo.mjs";
import { PlaygroundPage } from "./playground-page.mjs";

/** The most that a cold load may transfer, compressed, in bytes, until the page can be used. */
const BUDGET = 300 * 1024;

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

test("a cold load stays within its budget, counted at the socket, headers and all", async () => {
  const relay = await counting(server.url);
  const playground = await PlaygroundPage.open(browser, relay.url);
  // The copy for offline use is taken afterwards, from what is loaded already and the rest.
  const first = relay.count.bytes;
  await playground.close();
  await relay.stop();
  console.log(`first load: ${first} bytes (${(first / 1024).toFixed(1)} KiB)`);
  assert.ok(first <= BUDGET, `${first} bytes, the budget is ${BUDGET}`);
});

test("once loaded it opens and runs without its server", async () => {
  const relay = await counting(server.url);
  const playground = await PlaygroundPage.open(browser, relay.url);
  const { page } = playground;
  const first = relay.count.bytes;
  await page.locator("#offline").filter({ hasText: "works without a network" }).waitFor();
  console.log(`with the copy for offline use: ${relay.count.bytes} bytes, ${relay.count.bytes - first} of them afterwards`);
  await relay.stop();
  playground.isOffline = true;
  await page.reload();
  await playground.isUsable();
  await playground.choose("cold-ramp");
  await playground.setSpeed(4);
  await playground.play.click();
  await playground.reaches("Finished");
  await playground.tab("Scenario");
  await page.waitForFunction(() => document.querySelector("#toml").value.includes("rows ="));
  await playground.close();
});

test("a copy that the browser has is not sent again", async () => {
  const answer = await fetch(new URL("app.js", server.url));
  await answer.arrayBuffer();
  const again = await fetch(new URL("app.js", server.url), { headers: { "if-none-match": answer.headers.get("etag") } });
  assert.equal(again.status, 304);
});
