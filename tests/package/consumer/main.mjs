// A program for Node and Deno.

import * as gates from "tidegate";
import { Drop, Pipeline, Retry } from "tidegate/pipeline";
import * as sim from "tidegate/sim";

import { check } from "./check.mjs";

console.log(JSON.stringify(await check({ ...gates, Drop, Pipeline, Retry }, sim)));
