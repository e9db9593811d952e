// A process that shares a limit: calls a provider from many loops at once until it is told to leave. It is a child of a test,
// which it sends its state when asked.

import { Redis } from "ioredis";
import { createClient } from "redis";
import { RequestGate } from "tidegate";

const { client, url, key, limits, onLoss, provider, loops } = JSON.parse(process.argv[2]);

async function connect() {
  if (client === "ioredis") return new Redis(url);
  return createClient({ url }).on("error", () => {}).connect();
}

const redis = await connect();
const gate = new RequestGate();
gate.register(key, limits);
const shared = await gate.share(key, { redis, name: "test", onLoss });
let isLeaving = false;

async function call() {
  while (!isLeaving) {
    const answer = await gate.fetch(key, provider, { headers: { "x-caller": client } }, { retries: 3 });
    await answer.text();
  }
}
const calls = Array.from({ length: loops }, () => call().catch((error) => {
  if (!isLeaving) throw error;
}));

process.on("message", async (message) => {
  if (message === "state") return process.send(shared.state());
  isLeaving = true;
  await shared.leave();
  await Promise.all(calls);
  redis.disconnect?.();
  redis.destroy?.();
  process.disconnect();
});
process.send("ready");
