// A clock and timers that a test controls.

const settle = setImmediate;

/** Resolves once every promise that needs no time to pass has settled. */
export const quiet = async () => {
  for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => settle(resolve));
};

/** Replaces `performance.now` and `setTimeout` until the test `t` ends. */
export function clock(t) {
  const real = { now: performance.now, setTimeout: globalThis.setTimeout, clearTimeout: globalThis.clearTimeout };
  const timers = new Map();
  // A whole number, so that sums of whole milliseconds are exact.
  let now = Math.ceil(performance.now());
  let names = 0;
  const control = {
    /** The delays of all timers so far. */
    delays: [],
    /** How many timers are armed. */
    get armed() {
      return timers.size;
    },
    get now() {
      return now;
    },
    /** Lets time pass without any timer firing, as in a throttled tab or on a sleeping machine. */
    pass(ms) {
      now += ms;
    },
    /** Fires what is due by the timers' own reckoning, `early` milliseconds before that. */
    async fire(early = 0) {
      for (const [name, timer] of [...timers]) {
        if (timer.at - early > now) continue;
        timers.delete(name);
        timer.fire();
      }
      await quiet();
    },
    /** Lets time pass, and fires whatever becomes due, in order. */
    async advance(ms) {
      await quiet();
      const end = now + ms;
      for (;;) {
        const [name, next] = [...timers].sort(([, a], [, b]) => a.at - b.at)[0] ?? [];
        if (next === undefined || next.at > end) break;
        now = Math.max(now, next.at);
        timers.delete(name);
        next.fire();
        await quiet();
      }
      now = end;
      await quiet();
    },
  };
  performance.now = () => now;
  globalThis.setTimeout = (fire, delay = 0) => {
    control.delays.push(delay);
    // As on every platform, a delay above 31 bits fires at once.
    const ms = delay > 2 ** 31 - 1 ? 1 : Math.max(delay, 0);
    timers.set(++names, { at: now + ms, fire });
    return names;
  };
  globalThis.clearTimeout = (name) => {
    // A timer of an earlier test, from before the clock, is an object.
    if (typeof name === "number") timers.delete(name);
    else real.clearTimeout(name);
  };
  t.after(() => {
    performance.now = real.now;
    globalThis.setTimeout = real.setTimeout;
    globalThis.clearTimeout = real.clearTimeout;
  });
  return control;
}

/** What a promise has come to so far: "pending", or its value or error. */
export async function state(promise) {
  let found = "pending";
  promise.then((value) => (found = { value }), (error) => (found = { error }));
  await quiet();
  return found;
}
