// What the page's main thread does, apart from what else goes on in the machine.
import assert from "node:assert/strict";

/** How long the tasks of the page's main thread kept a processor busy during `act`, the longest and all, in ms. On a machine
 * that is busy with other things a task takes longer by the clock, which says nothing about the page. */
export async function tasksDuring(browser, page, act) {
  await browser.startTracing(page, { categories: ["disabled-by-default-devtools.timeline", "devtools.timeline"] });
  const result = await act();
  const { traceEvents } = JSON.parse((await browser.stopTracing()).toString());
  // Other pages of the browser have main threads of their own.
  const { origin } = new URL(page.url());
  const frames = traceEvents.flatMap(({ name, args }) => (name === "TracingStartedInBrowser" ? args.data.frames : []));
  const own = frames.filter(({ url }) => url.startsWith(origin)).map(({ processId }) => processId);
  const main = traceEvents.filter((event) => event.name === "thread_name" && event.args.name === "CrRendererMain" && own.includes(event.pid));
  const isMain = ({ pid, tid }) => main.some((thread) => thread.pid === pid && thread.tid === tid);
  const tasks = traceEvents.filter((event) => event.name === "RunTask" && event.ph === "X" && isMain(event));
  assert.ok(tasks.length > 100, "the trace holds the tasks");
  const spent = tasks.map((task) => (task.tdur ?? task.dur) / 1_000);
  const sum = (all) => all.reduce((some, ms) => some + ms, 0);
  return { ...result, longest: Math.max(...spent), busy: sum(spent) };
}
