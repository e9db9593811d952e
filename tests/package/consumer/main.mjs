// A program for Node and Deno.

import * as live from "tidegate";
import * as sim from "tidegate/sim";

import { check } from "./check.mjs";

console.log(JSON.stringify(await check(live, sim)));
