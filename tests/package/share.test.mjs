// A Node process and `tidegate proxy` share one limit: the same keys and messages, so one leader and one limit for both.
// TIDEGATE_BIN is the folder of the program.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";

import { RequestGate } from "../../host-wasm/npm/dist/load/node/index.js";
import { Provider } from "../../host-wasm/npm/test/lib/provider.mjs";
import { RedisServer } from "../../host-wasm/npm/test/lib/redis.mjs";
import { until } from "../patience.mjs";

const { Redis } = createRequire(new URL("../../host-wasm/npm/package.json", import.meta.url))("ioredis");

const LIMIT = 6;
const LOOPS = 8;

/** Starts a proxy in front of the provider. Returns its address. */
async function startProxy(t, file) {
  const proxy = spawn(join(process.env.TIDEGATE_BIN ?? "", "tidegate"), ["proxy", file], { stdio: ["ignore", "pipe", "inherit"] });
  t.after(async () => {
    const ended = once(proxy, "close");
    proxy.kill("SIGTERM");
    await ended;
  });
  for await (const line of createInterface({ input: proxy.stdout })) {
    if (line.startsWith("listening on ")) return line.slice("listening on ".length);
  }
  throw new Error("the proxy did not listen");
}

test("a Node process and a proxy share one limit under one leader", async (t) => {
  const [server, provider] = [await RedisServer.start(), await Provider.start()];
  const folder = await mkdtemp(join(tmpdir(), "tidegate-share-"));
  const redis = new Redis(server.url);
  const gate = new RequestGate();
  t.after(async () => {
    gate.free();
    redis.disconnect();
    provider.stop();
    await server.stop();
    await rm(folder, { recursive: true });
  });
  const file = join(folder, "proxy.toml");
  await writeFile(file, `listen = "127.0.0.1:0"
[share]
url_env = "STORE"
name = "acme-prod"
[[providers]]
name = "acme"
base_url = "${provider.url}/v1"
max_parallel = ${LIMIT}
`);
  process.env.STORE = server.url;
  const address = await startProxy(t, file);
  gate.register("acme/m", { maxParallel: LIMIT });
  const shared = await gate.share("acme/m", { redis, name: "acme-prod" });

  let isOver = false;
  let byProxy = 0;
  const body = JSON.stringify({ model: "m", messages: [{ role: "user", content: "hello" }] });
  const headers = { "content-type": "application/json" };
  const callProxy = async () => {
    while (!isOver) {
      const answer = await fetch(`${address}/chat/completions`, { method: "POST", headers, body });
      assert.equal(answer.status, 200, await answer.text());
      byProxy += 1;
    }
  };
  const callGate = async () => {
    while (!isOver) await (await gate.fetch("acme/m", provider.url, { headers: { "x-caller": "gate" } })).text();
  };
  const calls = Array.from({ length: LOOPS }, () => [callProxy(), callGate()]).flat();
  await until(() => [byProxy, provider.answered.gate ?? 0], (answered) => answered.every((count) => count >= 50));
  const { leader, members, limit } = await until(() => shared.state(), (state) => state.members === 2 && state.hasLease);
  assert.ok(limit <= LIMIT && provider.most <= LIMIT, `${limit}, ${provider.most}`);
  const page = await fetch(new URL("/why", address), { headers: { accept: "application/json" } });
  const [resource] = (await page.json()).resources;
  assert.deepEqual([resource.share.leader, resource.share.members], [leader, members]);
  isOver = true;
  await Promise.all(calls);
  await shared.leave();
});
