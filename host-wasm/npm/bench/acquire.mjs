// Measures the cost of a permit: 20 000 tasks through a gate, compared with p-limit, p-queue and bottleneck.
//
//     npm run bench            (after npm run build)
//
// Times depend on the load of the machine, so only ratios count: every limiter runs once in each round, and each
// round starts with a different one. Fails if the gate takes longer than p-limit or p-queue.

import Bottleneck from "bottleneck";
import pLimit from "p-limit";
import PQueue from "p-queue";
import { RequestGate } from "tidegate";

const TASKS = 20_000;
const ROUNDS = Number(process.env.ROUNDS ?? 9);
const PARALLEL = 16;
/** Its time for a task grows with the queue, to minutes for as many: it gets fewer, once, and is only looked at. */
const SLOW = "bottleneck";
const SLOW_TASKS = 2_000;

const work = async () => {};

function gateOf(limits = {}) {
  const gate = new RequestGate();
  return { gate, key: gate.register("provider/model", { maxParallel: PARALLEL, ...limits }) };
}

const all = (one, length = TASKS) => Promise.all(Array.from({ length }, one));

const contenders = {
  "p-limit": async () => {
    const limit = pLimit(PARALLEL);
    await all(() => limit(work));
  },
  "p-queue": async () => {
    const queue = new PQueue({ concurrency: PARALLEL });
    await all(() => queue.add(work));
  },
  [SLOW]: async () => {
    const limiter = new Bottleneck({ maxConcurrent: PARALLEL });
    await all(() => limiter.schedule(work), SLOW_TASKS);
  },
  "gate.run": async () => {
    const { gate, key } = gateOf();
    await all(() => gate.run(key, work));
    gate.free();
  },
  "gate.run by name": async () => {
    const { gate } = gateOf();
    await all(() => gate.run("provider/model", work));
    gate.free();
  },
  "gate.acquire": async () => {
    const { gate, key } = gateOf();
    await all(async () => {
      const permit = await gate.acquire(key);
      await work();
      permit.finish("success");
    });
    gate.free();
  },
  "gate.acquire, one at a time": async () => {
    const { gate, key } = gateOf();
    for (let task = 0; task < TASKS; task += 1) (await gate.acquire(key)).finish("success");
    gate.free();
  },
  "p-limit, one at a time": async () => {
    const limit = pLimit(PARALLEL);
    for (let task = 0; task < TASKS; task += 1) await limit(work);
  },
};

const times = Object.fromEntries(Object.keys(contenders).map((name) => [name, []]));
const names = Object.keys(contenders);
for (let round = -1; round < ROUNDS; round += 1) {
  for (let turn = 0; turn < names.length; turn += 1) {
    const name = names[(turn + round + names.length) % names.length];
    if (name === SLOW && round !== 0) continue;
    globalThis.gc?.();
    const begin = performance.now();
    await contenders[name]();
    // The first round warms up the compiler.
    if (round >= 0) times[name].push(((performance.now() - begin) * 1e3) / (name === SLOW ? SLOW_TASKS : TASKS));
  }
}

const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
const cost = Object.fromEntries(names.map((name) => [name, median(times[name])]));
const pad = (text, width) => String(text).padEnd(width);
console.log(`${TASKS} tasks, ${PARALLEL} at once, median of ${ROUNDS} rounds`);
console.log(pad("", 30), pad("us a task", 10), pad("x p-limit", 10), pad("x p-queue", 10));
for (const name of names) {
  const times = (peer) => (cost[name] / cost[peer]).toFixed(2);
  console.log(pad(name, 30), pad(cost[name].toFixed(2), 10), pad(times("p-limit"), 10), pad(times("p-queue"), 10));
}
const beaten = ["gate.run", "gate.acquire"].every((name) =>
  ["p-limit", "p-queue"].every((peer) => cost[name] <= cost[peer]),
);
if (!beaten) {
  console.error("the gate takes longer than a peer");
  process.exitCode = 1;
}
