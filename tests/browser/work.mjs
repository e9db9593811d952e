// How much the page does, in counts that are the same on every machine: what one task of its main thread touches, what one frame
// of the display draws, and what its worker sends. The times beside them are for `bench.mjs` only.
import assert from "node:assert/strict";

/**
 * What the page's main thread did during `act`, beside what `act` returns.
 *
 * - `most.styled`: elements whose style was computed anew, in the task with the most of them;
 * - `most.laidOut`: boxes that a layout had to look at, in the task with the most of them;
 * - `most.layouts`: layouts, in the task with the most of them;
 * - `longest` and `busy`: how long tasks kept a processor, the longest and all, in ms.
 */
export async function workDuring(browser, page, act) {
  await browser.startTracing(page, { categories: ["disabled-by-default-devtools.timeline", "devtools.timeline"] });
  let result, trace;
  try {
    result = await act();
  } finally {
    // Also after a failure: a browser records one trace at a time.
    trace = await browser.stopTracing();
  }
  const { traceEvents } = JSON.parse(trace.toString());
  // Other pages of the browser have main threads of their own.
  const { origin } = new URL(page.url());
  const frames = traceEvents.flatMap(({ name, args }) => (name === "TracingStartedInBrowser" ? args.data.frames : []));
  const own = frames.filter(({ url }) => url.startsWith(origin)).map(({ processId }) => processId);
  const main = traceEvents.filter((event) => event.name === "thread_name" && event.args.name === "CrRendererMain" && own.includes(event.pid));
  const isMain = ({ pid, tid }) => main.some((thread) => thread.pid === pid && thread.tid === tid);
  const events = traceEvents.filter((event) => isMain(event) && event.ph === "X").sort((one, other) => one.ts - other.ts);
  const tasks = events.filter(({ name }) => name === "RunTask");
  assert.ok(tasks.length > 100, "the trace holds the tasks");
  const most = { styled: 0, laidOut: 0, layouts: 0 };
  const all = { styles: 0, layouts: 0 };
  let next = 0;
  for (const task of tasks) {
    const own = { styled: 0, laidOut: 0, layouts: 0 };
    while (next < events.length && events[next].ts < task.ts) next += 1;
    for (; next < events.length && events[next].ts <= task.ts + task.dur; next += 1) {
      const { name, args } = events[next];
      if (name === "UpdateLayoutTree") {
        own.styled += args.elementCount ?? 0;
        all.styles += 1;
      } else if (name === "Layout") {
        own.laidOut += args.beginData?.dirtyObjects ?? 0;
        own.layouts += 1;
        all.layouts += 1;
      }
    }
    for (const [count, value] of Object.entries(own)) most[count] = Math.max(most[count], value);
  }
  assert.ok(all.styles > 0, "the trace holds what tasks touch");
  const spent = tasks.map((task) => (task.tdur ?? task.dur) / 1_000);
  return { ...result, most, layouts: all.layouts, longest: Math.max(...spent), busy: spent.reduce((sum, ms) => sum + ms, 0) };
}

/** Counts, from the first script of a page on and by frame of the display: pictures that its worker sends, the numbers in them, and
 * operations on canvases. They are in `globalThis.counts`; `most` is by frame. Given to `addInitScript`. */
export function countByFrame() {
  const none = () => ({ pictures: 0, numbers: 0, painted: 0 });
  let frame = none();
  /** The longest message to the worker as JSON, in characters: what it has already is called by its name. */
  const counts = { sent: 0, frames: 0, pictures: 0, most: none(), reset: () => Object.assign(counts, { sent: 0, frames: 0, pictures: 0, most: none() }) };
  globalThis.counts = counts;
  const tick = () => {
    counts.frames += 1;
    counts.pictures += frame.pictures;
    for (const [name, value] of Object.entries(frame)) counts.most[name] = Math.max(counts.most[name], value);
    frame = none();
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
  /** How many numbers, texts and the like something is made of. */
  const sizeOf = (value) => {
    if (value instanceof ArrayBuffer) return value.byteLength / 8;
    return typeof value === "object" && value !== null ? Object.values(value).reduce((sum, part) => sum + sizeOf(part), 0) : 1;
  };
  // Pictures come as calls of the page by its worker, through a channel of their own.
  const listen = MessagePort.prototype.addEventListener;
  MessagePort.prototype.addEventListener = function (type, ...rest) {
    listen.call(this, type, ({ data }) => {
      if (data?.path?.at(-1) !== "frame") return;
      frame.pictures += 1;
      frame.numbers += sizeOf(data.argumentList);
    });
    return listen.call(this, type, ...rest);
  };
  globalThis.Worker = class extends Worker {
    postMessage(message, ...rest) {
      counts.sent = Math.max(counts.sent, JSON.stringify(message).length);
      return super.postMessage(message, ...rest);
    }
  };
  for (const kind of [CanvasRenderingContext2D, Path2D]) {
    for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(kind.prototype))) {
      if (typeof value !== "function" || name === "constructor") continue;
      kind.prototype[name] = function (...values) {
        frame.painted += 1;
        return value.apply(this, values);
      };
    }
  }
}

/** The counts of as many frames of the display as it takes for so many pictures. Those before do not count. */
export const countPictures = (page, pictures) =>
  page.evaluate(async (pictures) => {
    counts.reset();
    while (counts.pictures < pictures) {
      const phase = document.getElementById("phase").textContent;
      if (phase !== "Running") throw new Error(`the run is ${phase} after ${counts.pictures} pictures: ${document.getElementById("failure").textContent}`);
      await new Promise(requestAnimationFrame);
    }
    return { frames: counts.frames, ...counts.most };
  }, pictures);

/** Counts frames for so many seconds, and how many there were in one. For `bench.mjs` only. */
export const framesASecond = (page, seconds) =>
  page.evaluate(async (seconds) => {
    const begin = performance.now();
    let frames = 0;
    await new Promise((resolve) => {
      const tick = () => {
        frames += 1;
        if (performance.now() - begin >= seconds * 1_000) resolve(undefined);
        else requestAnimationFrame(tick);
      };
      requestAnimationFrame(tick);
    });
    return { frames, rate: frames / ((performance.now() - begin) / 1_000) };
  }, seconds);
