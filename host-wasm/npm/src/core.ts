/**
 * Which wasm module gates are made with.
 *
 * `tidegate` loads a module that is gates alone; `tidegate/pipeline` one that has pipelines too. A program that imports both makes
 * all its gates with the second, so that any pipeline may call through any of them, in whichever order they are imported.
 */

import { type GateModule, Tickets } from "./gate/tickets.js";

let tickets: Tickets | undefined;
/** Settled once the module with pipelines is there; undefined while nobody has asked for it. */
let pipelines: Promise<void> | undefined;

/**
 * An entry wants gates. Resolves once they can be made. Entries that are imported together begin in one turn: so it is known by
 * the end of the first load whether pipelines are to come, and nobody makes a gate before they have.
 */
export async function provideGates(load: () => Promise<GateModule>): Promise<void> {
  if (pipelines === undefined && tickets === undefined) {
    const module = await load();
    tickets ??= new Tickets(module);
  }
  await pipelines;
}

/** An entry wants gates and pipelines. */
export function providePipelines(load: () => Promise<GateModule>): Promise<void> {
  pipelines ??= load().then((module) => {
    tickets = new Tickets(module);
  });
  return pipelines;
}

/** The calls of the module that gates are made with from now on. */
export function newest(): Tickets {
  if (tickets === undefined) throw new Error('no wasm module is loaded: import "tidegate" or "tidegate/pipeline"');
  return tickets;
}
