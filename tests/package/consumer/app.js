// An app for a bundler.

import * as live from "tidegate";
import * as sim from "tidegate/sim";

import { check } from "./check.mjs";

globalThis.outcome = check(live, sim);
