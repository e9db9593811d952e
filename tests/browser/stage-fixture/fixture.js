// Puts the stage on a page by itself and feeds it with views made up here: no scheduler, no worker. What a person does
// is kept in `stage.heard`.
import { makeLayout, makeView } from "./views.js";
import { Stage } from "./stage/stage.js";

const heard = [];
const on = {
  why: (about) => heard.push({ why: about }),
  hold: (groups) => heard.push({ hold: groups }),
  capacity: (provider, slots) => heard.push({ capacity: slots ?? null, provider }),
  change: (what) => heard.push({ change: what }),
};

let stage;
let layout;
let size;

const longTasks = [];
new PerformanceObserver((list) => longTasks.push(...list.getEntries().map((entry) => entry.duration))).observe({ type: "longtask" });

window.fixture = {
  heard,
  longTasks,
  /** A stage of this size: see `makeLayout`. */
  build(chosen) {
    stage?.destroy();
    size = chosen;
    layout = makeLayout(size);
    stage = new Stage(document.querySelector("main"), layout, on);
  },
  /** Shows the view of an instant in ms, and returns its exact figures. */
  show(ms, changed = {}) {
    const view = { ...makeView(layout, size, ms), ...changed };
    stage.show(view);
    return JSON.parse(JSON.stringify(view.sample));
  },
  /** Shows views one frame after the other for so many real ms, and says how it went. */
  async feed(forMs) {
    const began = performance.now();
    longTasks.length = 0;
    let frames = 0;
    let spent = 0;
    let most = 0;
    let making = 0;
    while (performance.now() - began < forMs) {
      const at = await new Promise(requestAnimationFrame);
      const start = performance.now();
      const view = makeView(layout, size, 5_000 + (at - began) * 4);
      const made = performance.now();
      stage.show(view);
      const took = performance.now() - made;
      making += made - start;
      spent += took;
      most = Math.max(most, took);
      frames += 1;
    }
    // Long tasks are told a moment later.
    await new Promise((resolve) => setTimeout(resolve, 200));
    return { frames, perSecond: (frames / forMs) * 1000, mean: spent / frames, most, making: making / frames, longTasks: [...longTasks] };
  },
  recolour: () => stage.recolour(),
  destroy: () => stage.destroy(),
};
window.fixture.build({});
window.fixture.show(20_000);
