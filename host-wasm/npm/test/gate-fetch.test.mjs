// Fetches under a permit: the slot is held to the end of the body.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { once } from "node:events";
import { after, before, test } from "node:test";

import { RequestGate } from "tidegate";

import { quiet } from "./lib/clock.mjs";

const KEY = "provider/model";
const server = createServer((request, response) => pages[request.url.split("?")[0]](request, response));
let address;

const pages = {
  "/json": (_, response) => response.setHeader("content-type", "application/json").end('{"text":"tide"}'),
  "/empty": (_, response) => response.writeHead(204).end(),
  "/refused": (_, response) => response.writeHead(429, { "retry-after": "60" }).end("too many"),
  "/failed": (_, response) => response.writeHead(500).end("oops"),
  "/broken": (_, response) => {
    response.writeHead(200, { "content-length": "1000" });
    response.write("the beginning", () => response.destroy());
  },
  "/stream": (_, response) => {
    response.writeHead(200);
    response.write("first ");
    pages.next = (text, last) => (last ? response.end(text) : response.write(text));
  },
  "/silent": () => {},
};

before(async () => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  address = `http://127.0.0.1:${server.address().port}`;
});
after(() => {
  server.closeAllConnections();
  server.close();
});

const gateOf = (maxParallel = 2) => {
  const gate = new RequestGate();
  gate.register(KEY, { maxParallel });
  return gate;
};
const stateOf = (gate) => {
  const { inFlight, lastOutcome } = gate.snapshot(KEY);
  return [inFlight, lastOutcome];
};

test("the slot is held until the body was read to its end", async () => {
  const gate = gateOf();
  const answer = await gate.fetch(KEY, `${address}/json?a=1`);
  assert.deepEqual(stateOf(gate), [1, undefined]);
  assert.deepEqual([answer.status, answer.ok, answer.url, answer.type], [200, true, `${address}/json?a=1`, "basic"]);
  assert.equal(answer.headers.get("content-type"), "application/json");
  assert.deepEqual(await answer.json(), { text: "tide" });
  assert.deepEqual(stateOf(gate), [0, "success"]);
});

test("a streamed body is handed on as it comes, and ends the call with its end", async () => {
  const gate = gateOf(1);
  const answer = await gate.fetch(KEY, `${address}/stream`);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  assert.equal((await reader.read()).value, "first ");
  pages.next("second", false);
  assert.equal((await reader.read()).value, "second");
  assert.equal(gate.tryAcquire(KEY), undefined);
  pages.next("", true);
  assert.equal((await reader.read()).done, true);
  assert.deepEqual(stateOf(gate), [0, "success"]);
});

test("an answer without a body gives the slot back at once", async () => {
  const gate = gateOf();
  assert.equal((await gate.fetch(KEY, `${address}/empty`)).status, 204);
  assert.deepEqual(stateOf(gate), [0, "success"]);
});

test("a refusal gives the slot back with its head, and its pause is kept", async () => {
  const gate = gateOf();
  const answer = await gate.fetch(KEY, `${address}/refused`);
  assert.deepEqual(stateOf(gate), [0, "rate_limited"]);
  assert.ok(gate.why(KEY).endsInMs > 59_000);
  assert.equal(await answer.text(), "too many");
});

test("a failure of the provider counts as one when its body has ended", async () => {
  const gate = gateOf();
  const answer = await gate.fetch(KEY, `${address}/failed`);
  assert.equal(await answer.text(), "oops");
  assert.deepEqual(stateOf(gate), [0, "provider_failure"]);
});

test("a body that is given up counts as given up", async () => {
  const gate = gateOf();
  const answer = await gate.fetch(KEY, `${address}/stream`);
  await answer.body.cancel();
  assert.deepEqual(stateOf(gate), [0, "local_cancelled"]);
});

test("a body that breaks, and no connection at all, are failures of the provider", async () => {
  const gate = gateOf();
  const answer = await gate.fetch(KEY, `${address}/broken`);
  await assert.rejects(answer.text());
  assert.deepEqual(stateOf(gate), [0, "provider_failure"]);
  const nowhere = gateOf();
  await assert.rejects(nowhere.fetch(KEY, "http://127.0.0.1:1/"), TypeError);
  assert.deepEqual(stateOf(nowhere), [0, "provider_failure"]);
});

test("an aborted fetch leaves the queue, or ends as given up", async () => {
  const gate = gateOf(1);
  const controller = new AbortController();
  const silent = gate.fetch(KEY, `${address}/silent`, { signal: controller.signal });
  const waiting = gate.fetch(KEY, new Request(`${address}/json`, { signal: controller.signal }));
  await quiet();
  assert.equal(gate.snapshot(KEY).waiters, 1);
  controller.abort();
  await assert.rejects(silent, { name: "AbortError" });
  await assert.rejects(waiting, { name: "AbortError" });
  assert.deepEqual(stateOf(gate), [0, "local_cancelled"]);
});

test("a fetch past its time is a local timeout, and classify has the last word", async () => {
  const gate = gateOf();
  await assert.rejects(gate.fetch(KEY, `${address}/silent`, {}, { callTimeoutMs: 20 }), { name: "TimeoutError" });
  assert.deepEqual(stateOf(gate), [0, "local_timeout"]);
  const answer = await gate.fetch(KEY, `${address}/failed`, {}, { classify: () => "provider_timeout" });
  await answer.text();
  assert.deepEqual(stateOf(gate), [0, "provider_timeout"]);
});
