// Runs a gate for some minutes with calls that succeed, throw, are rate limited, are aborted and time out, and fetches whose bodies
// are left unread. Prints the memory every ten seconds: after the first minute it must not grow.
//
//     node --expose-gc bench/soak.mjs [SECONDS]      (after npm run build; default 180)

import { RequestGate } from "tidegate";
import { initSync } from "../dist/wasm/tidegate.js";

const SECONDS = Number(process.argv[2] ?? 180);
const EVERY_MS = 10_000;
const CALLERS = 64;

// A module that is loaded already returns its exports.
const { memory } = initSync();
const gate = new RequestGate({ defaultTimeoutMs: 2_000 });
gate.register("api", { maxParallel: 16, cooldownMs: 1, maxCooldownMs: 20 });
gate.register("other/model", { maxParallel: 8, cooldownMs: 1, maxCooldownMs: 20, budgets: [{ dimension: "requests", limit: 6_000_000 }] });
gate.subscribe(() => (events += 1));

const shared = new AbortController();
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const failure = (status) => Object.assign(new Error(`status ${status}`), { status, headers: new Headers({ "retry-after-ms": "1" }) });
const long = `data:text/plain,${"x".repeat(100_000)}`;

/** What a call is like, in turn. */
const KINDS = [
  (options) => gate.run("api", async () => "done", options),
  (options) => gate.run("api", () => pause(1), options),
  (options) => gate.run("api", () => Promise.reject(new Error("a defect of the caller")), options),
  (options) => gate.run("api", () => Promise.reject(failure(429)), options),
  (options) => gate.run("api", ({ signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))), {
    ...options,
    callTimeoutMs: 2,
  }),
  (options) => gate.run("other/model", () => pause(3), { ...options, signal: AbortSignal.timeout(1), tenant: `tenant ${calls % 5_000}` }),
  (options) => gate.run("other/model", () => Promise.reject(failure(500)), { ...options, retries: 1, signal: AbortSignal.timeout(5) }),
  (options) => gate.acquire("other/model", { ...options, timeoutMs: 1 }).then((permit) => permit.finish("success")),
  async (options) => void (await gate.fetch("api", long, { signal: options.signal })),
  async (options) => (await gate.fetch("api", long, { signal: options.signal }, { hold: "head" })).text(),
];

let calls = 0;
let failed = 0;
let events = 0;
let isOver = false;

async function caller(nth) {
  for (let turn = nth; !isOver; turn += 1) {
    calls += 1;
    await KINDS[turn % KINDS.length]({ signal: shared.signal }).catch(() => (failed += 1));
    // Timers run between calls.
    if (turn % 8 === 0) await pause(0);
  }
}

const kib = (bytes) => (bytes / 1024).toFixed(0).padStart(9);
console.log(["seconds", "calls", "failed", "events", "heap KiB", "rss KiB", "wasm KiB", "waiting"].map((head) => head.padStart(9)).join(" "));
const begun = performance.now();
function report() {
  globalThis.gc?.();
  const { heapUsed, rss } = process.memoryUsage();
  const counts = [Math.round((performance.now() - begun) / 1e3), calls, failed, events].map((count) => String(count).padStart(9));
  console.log([...counts, kib(heapUsed), kib(rss), kib(memory.buffer.byteLength), String(gate.size()).padStart(9)].join(" "));
}
const timer = setInterval(report, EVERY_MS);
const all = Array.from({ length: CALLERS }, (_, nth) => caller(nth));
await pause(SECONDS * 1_000);
isOver = true;
await Promise.all(all);
clearInterval(timer);
await gate.onIdle();
report();
gate.free();
