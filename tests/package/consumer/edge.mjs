// A worker at the edge. The package's conditions lead here: its runtime is told them by whoever bundles for it.

import * as live from "./node_modules/tidegate/dist/load/edge/index.js";
import * as sim from "./node_modules/tidegate/dist/load/edge/sim.js";

import { check } from "./check.mjs";

export default {
  async fetch() {
    return Response.json(await check(live, sim));
  },
};
