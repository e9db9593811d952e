// A module of a page that has no bundler.

import * as live from "./node_modules/tidegate/dist/load/browser/index.js";
import * as sim from "./node_modules/tidegate/dist/load/browser/sim.js";

import { check } from "./check.mjs";

globalThis.outcome = check(live, sim);
