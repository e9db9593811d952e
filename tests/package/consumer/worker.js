// A module worker of a page that has no bundler.

import * as live from "./node_modules/tidegate/dist/load/browser/index.js";
import * as sim from "./node_modules/tidegate/dist/load/browser/sim.js";

import { check } from "./check.mjs";

check(live, sim).then(
  (result) => postMessage({ result }),
  (error) => postMessage({ error: `${error?.stack ?? error}` }),
);
