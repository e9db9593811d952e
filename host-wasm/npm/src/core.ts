/**
 * Which wasm module gates are made with.
 *
 * `tidegate` loads a module that is gates alone; `tidegate/pipeline` one that has pipelines too. A program that imports both makes
 * all its gates with the second, so that any pipeline may call through any of them.
 */

import { type GateModule, Tickets } from "./gate-tickets.js";

let tickets: Tickets | undefined;
let hasPipelines = false;

/** Whether no module is there yet: then an entry has to load one. */
export function isMissing(): boolean {
  return tickets === undefined;
}

/** What an entry has loaded: gates alone. */
export function provideGates(module: GateModule): void {
  tickets ??= new Tickets(module);
}

/** What an entry has loaded: gates and pipelines. */
export function providePipelines(module: GateModule): void {
  if (hasPipelines) return;
  hasPipelines = true;
  tickets = new Tickets(module);
}

/** The calls of the module that gates are made with from now on. */
export function newest(): Tickets {
  if (tickets === undefined) throw new Error("no wasm module is loaded: import \"tidegate\" or \"tidegate/pipeline\"");
  return tickets;
}
