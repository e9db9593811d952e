// Measures the cost of one shared AbortSignal: calls and fetches with it and without it, and the abort of waiting calls.
//
//     npm run bench:abort      (after npm run build)
//
// Times depend on the load of the machine. The cost of a call must not depend on the number of calls.

import { RequestGate } from "tidegate";

const PARALLEL = 16;
const us = (ms, calls) => ((ms * 1e3) / calls).toFixed(2).padStart(10);

function timed(work) {
  const begin = performance.now();
  return Promise.resolve(work()).then(() => performance.now() - begin);
}

async function measure(calls) {
  const gate = new RequestGate();
  const key = gate.register("provider/model", { maxParallel: PARALLEL, algorithm: { name: "fixed", limit: PARALLEL } });
  const all = (options) => Promise.all(Array.from({ length: calls }, () => gate.run(key, async () => {}, options)));
  const alone = await timed(() => all({}));
  const { signal } = new AbortController();
  const shared = await timed(() => all({ signal }));
  const fetched = (init) =>
    Promise.all(Array.from({ length: calls }, async () => (await gate.fetch(key, "data:text/plain,tide", init)).text()));
  const fetch = await timed(() => fetched({}));
  const sharedFetch = await timed(() => fetched({ signal }));
  const held = await Promise.all(Array.from({ length: PARALLEL }, () => gate.acquire(key)));
  const controller = new AbortController();
  const waiting = Promise.allSettled(Array.from({ length: calls }, () => gate.acquire(key, { signal: controller.signal })));
  const aborted = await timed(() => {
    controller.abort();
    return waiting;
  });
  for (const permit of held) permit.finish("success");
  gate.free();
  return [alone, shared, fetch, sharedFetch, aborted];
}

const heads = ["no signal", "shared", "fetch", "shared", "aborted"];
console.log("microseconds a call".padEnd(20), ...heads.map((head) => head.padStart(10)));
await measure(1_000);
for (const calls of [1_000, 5_000, 20_000]) {
  globalThis.gc?.();
  const times = await measure(calls);
  console.log(String(calls).padEnd(20), ...times.map((ms) => us(ms, calls)));
}
