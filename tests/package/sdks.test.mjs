// The official clients under a gate: what they throw is learned from. Their own retries are off, as the README says.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, before, test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";
import axios from "axios";
import ky from "ky";
import OpenAI from "openai";

import { RequestGate } from "../../host-wasm/npm/dist/load/node/index.js";

const KEY = "provider/model";
const answers = {
  429: [429, { "retry-after": "7" }, { error: { type: "rate_limit_error", message: "slow down" } }],
  quota: [429, {}, { error: { type: "insufficient_quota", code: "insufficient_quota", message: "You exceeded your current quota" } }],
  500: [500, {}, { error: { message: "oops" } }],
  401: [401, {}, { error: { message: "no" } }],
  // The first request of a call; the others are accepted.
  once: [429, { "retry-after": "0.05" }, { error: { type: "rate_limit_error", message: "slow down" } }],
  // In the form of OpenAI and in that of Anthropic.
  accepted: [200, {}, {
    choices: [{ index: 0, message: { role: "assistant", content: "an answer" }, finish_reason: "stop" }],
    content: [{ type: "text", text: "an answer" }],
  }],
};
let mode = "429";
/** The call in progress. Requests of a call that timed out may arrive during a later one. */
let calls = 0;
let requests = 0;
const server = createServer((request, response) => {
  if (request.url.startsWith(`/${calls}/`)) requests += 1;
  if (mode === "silent") return;
  if (mode === "reset") return void response.destroy();
  const [status, headers, body] = answers[mode === "once" && requests > 1 ? "accepted" : mode];
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
});
let address;

before(async () => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  address = `http://127.0.0.1:${server.address().port}`;
});
after(() => {
  server.closeAllConnections();
  server.close();
});

const message = { role: "user", content: "hello" };
/** How each client makes a call that may take `timeout` milliseconds. */
const clients = {
  openai: ({ signal }, timeout) =>
    new OpenAI({ apiKey: "none", baseURL: `${address}/${calls}/v1`, maxRetries: 0, timeout }).chat.completions.create(
      { model: "m", messages: [message] },
      { signal },
    ),
  anthropic: ({ signal }, timeout) =>
    new Anthropic({ apiKey: "none", baseURL: `${address}/${calls}`, maxRetries: 0, timeout }).messages.create(
      { model: "m", max_tokens: 8, messages: [message] },
      { signal },
    ),
  axios: ({ signal }, timeout) => axios.post(`${address}/${calls}/v1`, {}, { signal, timeout, proxy: false }),
  ky: ({ signal }, timeout) => ky.post(`${address}/${calls}/v1`, { json: {}, signal, timeout, retry: 0 }).json(),
};

/**
 * What the gate makes of a call of `client` while the server behaves as `behaviour` says. `pause`: for how many seconds
 * it lets no call start, rounded to microseconds, or 0.
 */
async function learned(client, behaviour, options = {}, timeout = 60_000) {
  mode = behaviour;
  calls += 1;
  requests = 0;
  const gate = new RequestGate({ health: false });
  gate.register(KEY, { maxParallel: 4, algorithm: "aimd" });
  let pause = 0;
  const limited = ({ atMs, blockedUntilMs }) => (pause = Math.round((blockedUntilMs - atMs) * 1e3) / 1e6);
  gate.subscribe(limited, { kinds: ["rate_limited"] });
  await assert.rejects(gate.run(KEY, (call) => clients[client](call, timeout), options));
  const { lastOutcome, inFlight } = gate.snapshot(KEY);
  assert.equal(inFlight, 0);
  // Delivers the events that are left.
  gate.free();
  return { lastOutcome, pause };
}

/** The text of an answer, by client. */
const texts = {
  openai: ({ choices: [{ message }] }) => message.content,
  anthropic: ({ content: [{ text }] }) => text,
};

for (const client of Object.keys(texts)) {
  test(`${client}: with retries, a call that was refused once is made again after its Retry-After, and gives one result`, async () => {
    mode = "once";
    calls += 1;
    requests = 0;
    const gate = new RequestGate({ health: false });
    gate.register(KEY, { maxParallel: 4, algorithm: "aimd" });
    const events = [];
    gate.subscribe((event) => events.push(event), { kinds: ["rate_limited", "call_started"] });
    const answer = await gate.run(KEY, (call) => clients[client](call, 60_000), { retries: 1 });
    assert.equal(texts[client](answer), "an answer");
    assert.equal(requests, 2);
    const { lastOutcome, inFlight } = gate.snapshot(KEY);
    assert.deepEqual([lastOutcome, inFlight], ["success", 0]);
    gate.free();
    assert.deepEqual(events.map(({ kind }) => kind), ["call_started", "rate_limited", "call_started"]);
    const [, { atMs, blockedUntilMs }, again] = events;
    assert.equal(Math.round(blockedUntilMs - atMs), 50);
    assert.ok(again.atMs >= blockedUntilMs, `${again.atMs} ${blockedUntilMs}`);
  });
}

for (const client of Object.keys(clients)) {
  test(`${client}: a 429 is a rate limit, with its Retry-After, after one request`, async () => {
    assert.deepEqual(await learned(client, "429"), { lastOutcome: "rate_limited", pause: 7 });
    assert.equal(requests, 1);
  });

  test(`${client}: an empty account is told from a rate limit by the body`, async () => {
    assert.equal((await learned(client, "quota")).lastOutcome, "quota_exhausted");
  });

  test(`${client}: 5xx, a refused key and a broken connection are what they are`, async () => {
    assert.equal((await learned(client, "500")).lastOutcome, "provider_failure");
    assert.equal((await learned(client, "401")).lastOutcome, "key_rejected");
    assert.equal((await learned(client, "reset")).lastOutcome, "connection_failed");
  });

  test(`${client}: the client's own timeout and that of the gate say that the provider was late`, async () => {
    assert.equal((await learned(client, "silent", {}, 30)).lastOutcome, "provider_timeout");
    assert.equal((await learned(client, "silent", { callTimeoutMs: 30 })).lastOutcome, "provider_timeout");
  });

  test(`${client}: a call that its caller aborts is given up, and no failure of the provider`, async () => {
    const controller = new AbortController();
    server.once("request", () => controller.abort());
    assert.equal((await learned(client, "silent", { signal: controller.signal })).lastOutcome, "local_cancelled");
  });
}
