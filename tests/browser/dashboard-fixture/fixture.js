// Puts the dashboard on a page by itself and feeds it with views made up here: no scheduler, no worker. What a person does
// is kept in `dashboard.heard`.
import { makeLayout, makeView } from "./views.js";
import { figuresOf } from "../../../web-demo/app/src/compare/figures.ts";
import { Dashboard } from "../../../web-demo/app/src/dashboard/dashboard.ts";
import { Drags } from "../../../web-demo/app/src/drags.ts";
import "../../../web-demo/app/src/style.css";
import "../../../web-demo/app/src/dashboard.css";
import "../../../web-demo/app/src/providers.css";
import "../../../web-demo/app/src/graph.css";

const heard = [];
const on = {
  why: (about, past) => heard.push(past ? { why: about, at: past.at, steps: past.steps } : { why: about }),
  past: (ms) => heard.push({ past: ms ?? null }),
  hold: (groups) => heard.push({ hold: groups }),
  capacity: (provider, slots) => heard.push({ capacity: slots ?? null, provider }),
  change: (what) => heard.push({ change: what }),
};

let dashboard;
let layout;
let size;

window.fixture = {
  heard,
  makeLayout,
  figuresOf,
  Drags,
  /** A dashboard of this size: see `makeLayout`. */
  build(chosen) {
    dashboard?.destroy();
    size = chosen;
    layout = makeLayout(size);
    dashboard = new Dashboard(document.querySelector("main"), layout, on);
  },
  /** Shows the view of an instant in ms, and returns its exact figures. `refused` are the 429s of some buckets, if there are no others. */
  show(ms, { refused, ...changed } = {}) {
    const view = { ...makeView(layout, size, ms), ...changed };
    const { columns, times } = view;
    if (refused) view.columns = (index) => ({ ...columns(index), refused: Float64Array.from(times, (_, bucket) => refused[bucket] ?? 0) });
    dashboard.show(view);
    return JSON.parse(JSON.stringify(view.sample));
  },
  /** Shows so many views, one in a frame of the display, and says how long that took by the clock. */
  async feed(frames) {
    globalThis.counts?.reset();
    const began = performance.now();
    for (let frame = 0; frame < frames; frame += 1) {
      await new Promise(requestAnimationFrame);
      dashboard.show(makeView(layout, size, 5_000 + frame * 67));
    }
    return { frames, perSecond: (1_000 * frames) / (performance.now() - began) };
  },
  recolour: () => dashboard.recolour(),
  destroy: () => dashboard.destroy(),
};
window.fixture.build({});
window.fixture.show(20_000);
