import { Tickets } from "./gate/tickets.js";
import * as module from "./wasm/tidegate.js";

let tickets: Tickets | undefined;

/** Returns the calls of the wasm module, which every entry loads before its importer begins. */
export function currentModule(): Tickets {
  return (tickets ??= new Tickets(module));
}
