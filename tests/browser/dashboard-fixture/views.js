// Views made up from a formula: any size, any instant, the same every time.

const BUCKETS = 1024;

/** A whole number from 0 to 2^32 - 1 that looks drawn. */
function scramble(number) {
  let x = (number + 0x9e3779b9) | 0;
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return (x ^ (x >>> 16)) >>> 0;
}

/** What the dashboard is made for: `columns` in a graph, `providers`, worker `lanes`, `tasks` in flight at most. */
export function makeLayout({ columns = 6, providers = 2, lanes = 24 }) {
  const names = ["topic", "question", "context", "answer", "verdict", "score"];
  const made = Array.from({ length: columns }, (_, index) => {
    const model = providers === 0 || index % 6 === 0 || index % 6 === 5 ? null : index % providers;
    const after = index === 0 ? [] : index % 6 === 1 || index % 6 === 2 ? [index - (index % 6)] : index % 6 === 3 ? [index - 1, index - 2] : [index - 1];
    const name = names[index % 6] + (index < 6 ? "" : `_${Math.floor(index / 6) + 1}`);
    return { name, kind: model === null ? "local" : "model", group: index % Math.min(columns, 6), model, after, strategy: index === 0 ? "from_scratch" : "cell" };
  });
  return {
    columns: made,
    groups: made.slice(0, 6).map(({ name, kind }) => ({ name, kind })),
    providers: Array.from({ length: providers }, (_, index) => ({ name: ["river", "harbour", "delta", "fjord", "lagoon", "strait", "estuary", "reef"][index] ?? `provider ${index}`, cap: 40 })),
    slots: [{ name: "submission" }, ...Array.from({ length: providers }, (_, index) => ({ name: `model ${index}` }))],
    lanes: Math.min(64, lanes),
  };
}

const wave = (ms, period, shift = 0) => 0.5 + 0.5 * Math.sin((ms / period + shift) * 2 * Math.PI);

function providerAt(index, ms, tasks) {
  const capacity = Math.round(tasks * (wave(ms, 16_000, index / 3) > 0.35 ? 0.8 : 0.4));
  const limit = Math.max(1, Math.round(Math.min(capacity * (0.8 + 0.25 * wave(ms, 2_600, index / 5)), (tasks * ms) / 4_000)));
  return { capacity, limit, in_flight: Math.min(limit, Math.round(limit * (0.7 + 0.3 * wave(ms, 700, index / 7)))) };
}

function makeSample(layout, { tasks = 24, lanes = 24, rows = 2_000 }, ms) {
  const at = ms * 1e6;
  const done = Math.min(rows, Math.floor((rows * ms) / 60_000));
  return {
    at,
    steps: Math.floor(ms * 3),
    providers: layout.providers.map(({ name }, index) => ({
      name,
      ...providerAt(index, ms, tasks),
      effective_max: 40,
      algorithm: "aimd",
      waiting: Math.floor(tasks * 0.3 * wave(ms, 3_000, index / 4)),
      changed: index === 0,
      accepted: done * 3,
      refused: Math.floor(ms / 900) + index,
      cooldown_until: wave(ms, 9_000, index / 2) > 0.9 ? at + 1.4e9 : null,
      refusing_until: null,
      slow_until: index === 1 ? at + 4.25e9 : null,
      idle: { busy_slot_ns: 3 * at, idle_slot_ns: at, overhang_slot_ns: 0, starved_slot_ns: at / 2 },
    })),
    columns: layout.columns.map(({ model }, index) => ({
      ready: Math.floor((tasks / 2) * wave(ms, 4_000, index / 9)),
      calling: model === null ? 0 : Math.floor((tasks / 4) * wave(ms, 1_500, index / 5)),
      waiting: model === null ? 0 : Math.floor((tasks / 5) * wave(ms, 2_100, index / 3)),
      yielded: 0,
      local: model === null ? Math.floor((tasks / 6) * wave(ms, 1_100, index / 3)) : 0,
      done: Math.max(0, done - index * 20),
      failed: index === 3 ? Math.floor(ms / 8_000) : 0,
      skipped: index === 4 ? Math.floor(ms / 500) : 0,
      dropped: index === 3 ? Math.floor(ms / 5_000) : 0,
    })),
    groups: layout.groups.map(({ name, kind }, index) => ({
      name,
      kind,
      weight: [1, 2, 1, 0.5, 1, 3][index] ?? 1,
      queued: Math.floor(tasks * wave(ms, 5_000, index / 6)),
      running: Math.floor((tasks / 3) * wave(ms, 2_000, index / 6)),
      limit: index === 0 ? null : Math.ceil(tasks / 4),
      debt: index === 2 ? Math.floor(5 * wave(ms, 3_000)) : 0,
    })),
    slots: layout.slots.map(({ name }, index) => ({ name, used: Math.floor(lanes / 2), limit: index === 0 ? lanes : tasks, demand: 3 })),
    row_groups: { open: 2, target: 3, done: Math.floor(done / 100), total: Math.ceil(rows / 100) },
    queue_depth: Math.floor(tasks * 1.5),
    running: Math.floor(lanes * 0.9),
    rows_done: done,
    rows_dropped: Math.floor(ms / 5_000),
    rows_total: rows,
    finished: false,
    idle: ["submission", ...layout.providers.map(({ name }) => name)].map((name, index) => {
      const [busy, starved] = [0.55 + 0.2 * wave(ms, 30_000, index / 3), 0.06 + 0.05 * index * wave(ms, 9_000)];
      return {
        name,
        busy,
        starved,
        frontier: 1 - busy - starved,
        why: [
          { cause: "dependency_horizon", words: "the next tasks wait for running ones", share: (1 - busy - starved) * 0.8 },
          { cause: "request_limit", words: "the adaptive limit is below the maximum", share: starved },
        ],
      };
    }),
  };
}

/** The history up to an instant. */
function makeTelemetry(layout, { tasks = 24 }, ms) {
  const width = Math.max(1, 2 ** Math.ceil(Math.log2(Math.max(1, ms) / (BUCKETS - 1))));
  const length = Math.min(BUCKETS, Math.floor(ms / width) + 1);
  const times = Float64Array.from({ length }, (_, index) => (index === length - 1 ? ms : index * width));
  const columns = (index) => {
    const levels = Array.from(times, (at) => providerAt(index, at, tasks));
    const of = (pick) => Float64Array.from(levels, pick);
    return {
      limit: of((level) => level.limit),
      inFlight: of((level) => level.in_flight * 0.96),
      inService: of((level) => Math.min(level.in_flight * 0.96, level.capacity)),
      peak: of((level) => level.in_flight),
      capacity: of((level) => level.capacity),
      refused: Float64Array.from(times, (at, bucket) => (levels[bucket].limit > levels[bucket].capacity && scramble(bucket + index) % 5 === 0 ? 1 : 0)),
      cooling: Float64Array.from(times, (at) => (wave(at, 9_000, index / 2) > 0.9 ? 1 : 0)),
    };
  };
  return { times, columns };
}

/** Spans that fill every lane, the earliest first; `spans` sets how many there are in the window. */
function makeLanes(layout, { spans = 600 }, ms, windowMs) {
  const perLane = Math.ceil(spans / layout.lanes);
  const step = windowMs / perLane;
  const found = [];
  const first = Math.max(0, Math.floor((ms - windowMs) / step));
  for (let turn = first; turn * step <= ms; turn += 1) {
    for (let lane = 0; lane < layout.lanes; lane += 1) {
      const drawn = scramble(turn * 131 + lane);
      const start = turn * step + ((drawn % 100) / 300) * step;
      const end = start + step * (0.45 + ((drawn >>> 8) % 100) / 220);
      if (start > ms || drawn % 11 === 0) continue;
      const column = (drawn >>> 4) % layout.columns.length;
      const kind = layout.columns[column].model === null ? 0 : drawn % 3 === 0 ? 1 : 2;
      found.push(lane, start, end > ms ? Number.NaN : end, column, kind);
    }
  }
  const from = Math.max(0, found.length - 5 * 8192);
  const lanes = Float64Array.from(from === 0 ? found : found.slice(from));
  return { lanes, lanesCount: lanes.length / 5 };
}

/** A view of the run at an instant in ms. */
export function makeView(layout, size, ms) {
  const windowMs = size.windowMs ?? 10_000;
  return {
    sample: makeSample(layout, size, ms),
    layout,
    ...cached(layout, size, ms),
    ...(size.spans > 4_000 ? fastLanes(layout, size, ms, windowMs) : makeLanes(layout, size, ms, windowMs)),
    windowMs,
    changes: [
      { at_ms: 3_000, set: "capacity", model: "river", slots: 0 },
      { at_ms: 4_500, set: "capacity", model: "river", slots: "schedule" },
      { at_ms: 11_000, set: "slow", model: "river", factor: 4, for_ms: 5_000 },
      { at_ms: 12_000, set: "policy", policy: "strict_fair" },
    ].filter((change) => change.at_ms <= ms),
  };
}

let kept;
/** For long feeds the history is made once and only its end moves: the test measures the dashboard, not this file. */
function cached(layout, size, ms) {
  if (!size.cache) return makeTelemetry(layout, size, ms);
  if (kept?.layout !== layout) {
    const { times, columns } = makeTelemetry(layout, size, 40_000);
    const all = layout.providers.map((_, index) => columns(index));
    kept = { layout, times, columns: (index) => all[index] };
  }
  kept.times[kept.times.length - 1] = Math.max(40_000, ms);
  return { times: kept.times, columns: kept.columns };
}

let spansKept;
/** As many spans as asked for, of one buffer, moved along with time. */
function fastLanes(layout, size, ms, windowMs) {
  if (spansKept?.layout !== layout) {
    const { lanes, lanesCount } = makeLanes(layout, size, windowMs, windowMs);
    spansKept = { layout, lanes, lanesCount, shown: lanes.slice() };
  }
  const { lanes, lanesCount, shown } = spansKept;
  for (let index = 0; index < lanesCount; index += 1) {
    shown[5 * index + 1] = lanes[5 * index + 1] + ms - windowMs;
    shown[5 * index + 2] = lanes[5 * index + 2] + ms - windowMs;
  }
  return { lanes: shown, lanesCount };
}
