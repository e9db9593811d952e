// Measures the cost of a permit: 20 000 tasks through a gate, compared with p-limit, p-queue and bottleneck.
//
//     npm run bench            (after npm run build)
//     BUSY=4 npm run bench     while 4 other processes keep processors busy
//
// Times depend on the load of the machine, so only ratios count: every limiter runs once in each round, and
// each round starts with a different one.
//
// Fails if `gate.run` takes more processor time than p-limit. The other ratios are printed and have no goal.
// The clock is not judged: it also counts what is no work of the gate. The gates of a round are new, and
// `tide` starts the first 20 calls of each at least 1 ms apart, which is about 1 us a task. It also counts
// what other processes get.

import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";

import Bottleneck from "bottleneck";
import pLimit from "p-limit";
import PQueue from "p-queue";
import { RequestGate } from "tidegate";

const TASKS = 20_000;
const ROUNDS = Number(process.env.ROUNDS ?? 9);
const PARALLEL = 16;
const BUSY = Number(process.env.BUSY ?? 0);
/** Its time for a task grows with the queue, to minutes for as many: it gets fewer, once, and is only looked at. */
const SLOW = "bottleneck";
const SLOW_TASKS = 2_000;

const work = async () => {};

function gateOf(limits = {}) {
  const gate = new RequestGate();
  return { gate, key: gate.register("provider/model", { maxParallel: PARALLEL, ...limits }) };
}

/**
 * Tasks that run or wait in all rounds, as some do in a program at most times. A forced garbage collection
 * discards the compiled code that uses a class without objects, and each round would compile it again. One
 * that V8 starts by itself keeps that code.
 */
const never = () => new Promise(() => {});
const [openLimit, openQueue] = [pLimit(1), new PQueue({ concurrency: 1 })];
const open = gateOf({ maxParallel: 2, algorithm: "fixed" });
const openPermit = await open.gate.acquire(open.key);
for (let task = 0; task < 2; task += 1) {
  void openLimit(never);
  void openQueue.add(never);
  void open.gate.run(open.key, never);
}
void open.gate.acquire(open.key);

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

const names = Object.keys(contenders);
/** For each of them, microseconds a task by round: by the clock, and of a processor. */
const times = Object.fromEntries(names.map((name) => [name, []]));
const processorTimes = Object.fromEntries(names.map((name) => [name, []]));
// Processes, because the processor time of this one includes its threads.
const burners = Array.from({ length: BUSY }, () => fork(fileURLToPath(new URL("burner.mjs", import.meta.url))));
for (let round = -1; round < ROUNDS; round += 1) {
  for (let turn = 0; turn < names.length; turn += 1) {
    const name = names[(turn + round + names.length) % names.length];
    if (name === SLOW && round !== 0) continue;
    globalThis.gc?.();
    const [begin, processorBegin] = [performance.now(), process.cpuUsage()];
    await contenders[name]();
    const [taken, { user, system }] = [performance.now() - begin, process.cpuUsage(processorBegin)];
    // The first round warms up the compiler.
    if (round < 0) continue;
    const tasks = name === SLOW ? SLOW_TASKS : TASKS;
    times[name].push((taken * 1e3) / tasks);
    processorTimes[name].push((user + system) / tasks);
  }
}
for (const burner of burners) burner.disconnect();
openPermit.finish("success");

const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
const medians = (of) => Object.fromEntries(names.map((name) => [name, median(of[name])]));
const pad = (text, width) => String(text).padEnd(width);
const others = BUSY > 0 ? `, beside ${BUSY} busy ${BUSY === 1 ? "process" : "processes"}` : "";
console.log(`${TASKS} tasks, ${PARALLEL} at once, median of ${ROUNDS} rounds${others}`);
const show = (what, cost) => {
  console.log(pad(what, 30), pad("us a task", 10), pad("x p-limit", 10), pad("x p-queue", 10));
  for (const name of names) {
    const times = (peer) => (cost[name] / cost[peer]).toFixed(2);
    console.log(pad(name, 30), pad(cost[name].toFixed(2), 10), pad(times("p-limit"), 10), pad(times("p-queue"), 10));
  }
};
const processorCost = medians(processorTimes);
show("by the clock", medians(times));
show("of a processor", processorCost);
if (processorCost["gate.run"] > processorCost["p-limit"]) {
  console.error("gate.run takes more processor time than p-limit");
  process.exitCode = 1;
}
