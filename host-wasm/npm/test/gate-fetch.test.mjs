// Fetches under a permit: the slot is held to the end of the body.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { once } from "node:events";
import { after, before, test } from "node:test";

import { RequestGate } from "tidegate";

import { until } from "../../../tests/patience.mjs";
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
  "/nothing": (_, response) => response.writeHead(200, { "content-length": "0" }).end(),
  "/raw": (request) => pages.raw(request.socket),
  "/rates": (request, response) =>
    response.setHeader("x-ratelimit-remaining-requests", request.url.split("=")[1]).end("tide"),
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

// AIMD keeps its limit at the cap until a call is rate limited: these tests are about the gate.
const gateOf = (maxParallel = 2) => {
  const gate = new RequestGate();
  gate.register(KEY, { maxParallel, algorithm: "aimd" });
  return gate;
};
const stateOf = (gate) => {
  const { inFlight, lastOutcome } = gate.snapshot(KEY);
  return [inFlight, lastOutcome];
};

test("the slot is held until the body has arrived, and the response is read as usual", async () => {
  const gate = gateOf();
  const answer = await gate.fetch(KEY, `${address}/json?a=1`);
  assert.deepEqual([answer.status, answer.ok, answer.url, answer.type], [200, true, `${address}/json?a=1`, "basic"]);
  assert.equal(answer.headers.get("content-type"), "application/json");
  assert.deepEqual(await answer.json(), { text: "tide" });
  assert.deepEqual(stateOf(gate), [0, "success"]);
});

/** As many bytes as the query says, all at once. */
pages["/long"] = (request, response) => response.end(Buffer.alloc(Number(request.url.split("=")[1]), "x"));

test("forty responses read after all have arrived need no more than sixteen slots", async () => {
  const gate = gateOf(16);
  const answers = await Promise.all(Array.from({ length: 40 }, () => gate.fetch(KEY, `${address}/long?bytes=100000`)));
  const texts = await Promise.all(answers.map((answer) => answer.text()));
  assert.deepEqual(texts.map((text) => text.length), Array(40).fill(100_000));
  assert.deepEqual(stateOf(gate), [0, "success"]);
});

test("an unread body longer than the read-ahead buffer releases its slot, and an event warns of it", async () => {
  const gate = gateOf(2);
  const warnings = [];
  gate.subscribe(({ kind, key, idleMs }) => warnings.push([kind, key, idleMs]), { kinds: ["body_left_unread"] });
  const length = 2_000_000;
  const options = { bodyIdleMs: 20 };
  const fetched = Array.from({ length: 6 }, () => gate.fetch(KEY, `${address}/long?bytes=${length}`, {}, options));
  const answers = await Promise.all(fetched);
  await until(() => gate.snapshot(KEY).inFlight, (calls) => calls === 0);
  assert.deepEqual(warnings, Array(6).fill(["body_left_unread", KEY, 20]));
  for (const answer of answers) assert.equal((await answer.arrayBuffer()).byteLength, length, "it can still be read");
  assert.deepEqual(stateOf(gate), [0, "success"]);
});

test("why reports calls that hold a slot for an unread body", async () => {
  const gate = gateOf(1);
  const answer = await gate.fetch(KEY, `${address}/long?bytes=2000000`, {}, { bodyIdleMs: 1e9 });
  const why = await until(() => gate.why(KEY), ({ unreadBodies }) => unreadBodies === 1);
  assert.equal(why.text, `${KEY}: the limit of 1 concurrent call is reached, and 1 call waits for its response body to be read`);
  const reader = answer.body.getReader();
  await reader.read();
  await until(() => gate.why(KEY)?.unreadBodies, (unread) => unread === undefined || unread === 1);
  await reader.cancel();
  assert.deepEqual([gate.why(KEY), ...stateOf(gate)], [undefined, 0, "local_cancelled"]);
});

test("with hold: head the slot is released when the head arrives", async () => {
  const gate = gateOf(1);
  const answer = await gate.fetch(KEY, `${address}/stream`, {}, { hold: "head" });
  assert.deepEqual(stateOf(gate), [0, "success"]);
  pages.next("second", true);
  assert.equal(await answer.text(), "first second");
  const failed = await gate.fetch(KEY, `${address}/failed`, {}, { hold: "head" });
  assert.deepEqual([failed.status, ...stateOf(gate)], [500, 0, "provider_failure"]);
  await assert.rejects(gate.fetch(KEY, address, {}, { hold: "tail" }), /hold is "tail"; expected "body" or "head"/);
  await assert.rejects(gate.fetch(KEY, address, {}, { bodyIdleMs: -1 }), /bodyIdleMs/);
});

for (const options of [{ hold: "head" }, { hold: "head", callTimeoutMs: 60_000 }, { callTimeoutMs: 60_000 }, {}]) {
  test(`the caller's signal aborts a response that is being read, with ${JSON.stringify(options)}`, async () => {
    const controller = new AbortController();
    const gate = gateOf(1);
    const answer = await gate.fetch(KEY, `${address}/stream`, { signal: controller.signal }, options);
    const reader = answer.body.getReader();
    assert.equal(new TextDecoder().decode((await reader.read()).value), "first ");
    controller.abort();
    await assert.rejects(reader.read(), { name: "AbortError" });
    assert.equal(gate.snapshot(KEY).inFlight, 0);
  });
}

test("the caller's signal aborts a response that has released its slot unread", async () => {
  const controller = new AbortController();
  const gate = gateOf(1);
  const { signal } = controller;
  const answer = await gate.fetch(KEY, `${address}/long?bytes=20000000`, { signal }, { bodyIdleMs: 1 });
  await until(() => gate.snapshot(KEY).inFlight, (calls) => calls === 0);
  controller.abort();
  await assert.rejects(answer.text(), { name: "AbortError" });
});

test("a streamed body is passed on as it arrives, and its end ends the call", async () => {
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

test("a response without a body releases the slot at once", async () => {
  const gate = gateOf();
  assert.equal((await gate.fetch(KEY, `${address}/empty`)).status, 204);
  assert.deepEqual(stateOf(gate), [0, "success"]);
});

test("a rate-limited response releases the slot with its head, and its Retry-After applies", async () => {
  const gate = gateOf();
  const limited = [];
  gate.subscribe((event) => limited.push(event), { kinds: ["rate_limited"] });
  const answer = await gate.fetch(KEY, `${address}/refused`);
  assert.deepEqual(stateOf(gate), [0, "rate_limited"]);
  assert.equal(gate.why(KEY).kind, "cooldown");
  await quiet();
  assert.deepEqual(limited.map(({ atMs, blockedUntilMs }) => Math.round((blockedUntilMs - atMs) * 1e3) / 1e3), [60_000]);
  assert.equal(await answer.text(), "too many");
});

test("a provider failure is counted when its body has ended", async () => {
  const gate = gateOf();
  const answer = await gate.fetch(KEY, `${address}/failed`);
  assert.equal(await answer.text(), "oops");
  assert.deepEqual(stateOf(gate), [0, "provider_failure"]);
});

test("a cancelled body counts as local_cancelled", async () => {
  const gate = gateOf();
  const answer = await gate.fetch(KEY, `${address}/stream`);
  await answer.body.cancel();
  assert.deepEqual(stateOf(gate), [0, "local_cancelled"]);
});

test("a broken body is a provider failure, and a failed connection is a connection failure", async () => {
  const gate = gateOf();
  const answer = await gate.fetch(KEY, `${address}/broken`);
  await assert.rejects(answer.text());
  assert.deepEqual(stateOf(gate), [0, "provider_failure"]);
  const nowhere = gateOf();
  await assert.rejects(nowhere.fetch(KEY, "http://127.0.0.1:1/"), TypeError);
  assert.deepEqual(stateOf(nowhere), [0, "connection_failed"]);
});

test("an aborted fetch leaves the queue, or ends as local_cancelled", async () => {
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

test("a fetch that exceeds its timeout is a provider timeout, unless classify overrides it", async () => {
  const gate = gateOf();
  await assert.rejects(gate.fetch(KEY, `${address}/silent`, {}, { callTimeoutMs: 20 }), { name: "TimeoutError" });
  assert.deepEqual(stateOf(gate), [0, "provider_timeout"]);
  const answer = await gate.fetch(KEY, `${address}/failed`, {}, { classify: () => "provider_timeout" });
  await answer.text();
  assert.deepEqual(stateOf(gate), [0, "provider_timeout"]);
});

test("an invalid request is not a provider failure", async () => {
  const gate = gateOf();
  for (const [input, init] of [["http//nowhere"], [address, { method: "GET", body: "x" }], [address, { headers: { "a b": "x" } }]]) {
    await assert.rejects(gate.fetch(KEY, input, init), TypeError);
    assert.deepEqual(stateOf(gate), [0, "unexpected"]);
  }
  const spent = new Request(address, { method: "POST", body: "x" });
  await spent.text();
  await assert.rejects(gate.fetch(KEY, spent), TypeError);
  assert.deepEqual(stateOf(gate), [0, "unexpected"]);
});

test("the rates of a head are applied once, and not again when the body ends", async () => {
  const gate = new RequestGate();
  gate.register(KEY, { maxParallel: 4, budgets: [{ dimension: "requests", limit: 60 }] });
  const available = () => gate.snapshot(KEY).budgets[0].available;
  const answer = await gate.fetch(KEY, `${address}/rates?left=30`);
  await (await gate.fetch(KEY, `${address}/rates?left=3`)).text();
  assert.ok(available() <= 4, `${available()}`);
  await answer.text();
  assert.ok(available() <= 4, `the older head is of no account any more: ${available()}`);
  assert.deepEqual(stateOf(gate), [0, "success"]);
});

test("a response that the constructor rejects is returned unchanged, and ends its call", async () => {
  const gate = gateOf(1);
  for (const [status, reason] of [[600, "Odd"], [999, ""]]) {
    pages.raw = (socket) => socket.end(`HTTP/1.1 ${status} ${reason}\r\ncontent-length: 4\r\nconnection: close\r\n\r\ntide`);
    const answer = await gate.fetch(KEY, `${address}/raw`);
    assert.deepEqual([answer.status, answer.statusText, answer.ok], [status, reason, false]);
    assert.equal(await answer.text(), "tide");
    assert.equal(gate.snapshot(KEY).inFlight, 0);
  }
});

test("a response with a non-Latin reason and one with a locked body hold no slot", async (t) => {
  const gate = gateOf(1);
  const odd = new Response("tide");
  Object.defineProperty(odd, "statusText", { value: "успех" });
  const fetched = t.mock.method(globalThis, "fetch", async () => odd);
  const answer = await gate.fetch(KEY, address);
  assert.equal(answer.statusText, "успех");
  assert.equal(await answer.text(), "tide");
  const taken = new Response("tide");
  taken.body.getReader();
  fetched.mock.mockImplementation(async () => taken);
  await assert.rejects(gate.fetch(KEY, address), TypeError);
  assert.deepEqual(stateOf(gate), [0, "provider_failure"]);
});

test("an unread body that is aborted, times out or is empty releases the slot", async () => {
  const gate = gateOf(1);
  const controller = new AbortController();
  const aborted = await gate.fetch(KEY, `${address}/stream`, { signal: controller.signal });
  controller.abort();
  await quiet();
  assert.deepEqual(stateOf(gate), [0, "local_cancelled"]);
  await assert.rejects(aborted.text(), { name: "AbortError" });
  const late = await gate.fetch(KEY, `${address}/stream`, {}, { callTimeoutMs: 2_000 });
  await until(() => stateOf(gate), ([calls]) => calls === 0);
  assert.deepEqual(stateOf(gate), [0, "provider_timeout"], "it was the provider's turn");
  await assert.rejects(late.text(), { name: "TimeoutError" });
  const empty = await gate.fetch(KEY, `${address}/nothing`);
  await until(() => stateOf(gate), ([calls]) => calls === 0);
  assert.deepEqual([empty.status, ...stateOf(gate)], [200, 0, "success"]);
  assert.equal(await empty.text(), "");
});

test("an abort with a custom reason counts as the caller's, not the provider's", async () => {
  for (const [reason, outcome] of [
    [new Error("no longer needed"), "local_cancelled"],
    ["a bare text", "local_cancelled"],
    [new DOMException("late", "TimeoutError"), "local_timeout"],
  ]) {
    const gate = gateOf();
    const controller = new AbortController();
    const silent = gate.fetch(KEY, `${address}/silent`, { signal: controller.signal });
    await quiet();
    controller.abort(reason);
    await silent.then(assert.fail, (error) => assert.equal(error, reason));
    assert.deepEqual(stateOf(gate), [0, outcome]);
  }
});

test("a clone of the response has the properties of the response", async () => {
  const gate = gateOf();
  const answer = await gate.fetch(KEY, `${address}/json`);
  const copy = answer.clone().clone();
  assert.deepEqual([copy.url, copy.status, copy.type], [`${address}/json`, 200, "basic"]);
  assert.deepEqual(await Promise.all([copy.json(), answer.json()]), [{ text: "tide" }, { text: "tide" }]);
});

test("a signal of null removes the request's own signal", async () => {
  const gate = gateOf();
  const controller = new AbortController();
  const request = new Request(`${address}/json`, { signal: controller.signal });
  controller.abort();
  await assert.rejects(gate.fetch(KEY, request), { name: "AbortError" });
  const answer = await gate.fetch(KEY, request, { signal: null });
  assert.deepEqual(await answer.json(), { text: "tide" });
});

test("an unknown option of fetch and a signal among its options are rejected by name", async () => {
  const gate = gateOf();
  await assert.rejects(gate.fetch(KEY, address, {}, { timeout: 100 }), /no setting `timeout`.*timeoutMs/);
  await assert.rejects(gate.fetch(KEY, address, {}, { signal: AbortSignal.abort() }), /no setting `signal`/);
  assert.equal(gate.snapshot(KEY).inFlight, 0);
});
