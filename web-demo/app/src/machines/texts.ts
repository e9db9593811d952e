// Words for what happens to the machines.
import type { ProcessSample, SharingEvent, SharingSample } from "../pkg/tidegate_machines.js";
import { count, span } from "../format.ts";

/** The name of a machine: A, B, C. */
export const nameOf = (process: number) => String.fromCharCode(65 + process);

const plural = (number: number, what: string) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;

/** The sum of the shares under valid leases. */
export const sharesOf = ({ processes }: SharingSample) => processes.reduce((sum, { share }) => sum + share, 0);

/**
 * What happened, as a sentence.
 * @param ttl how long a lease lasts, in ns
 */
export function eventText(event: SharingEvent, ttl: number) {
  switch (event.kind) {
    case "started":
      return `Machine ${nameOf(event.process)} starts.`;
    case "killed":
      return `Machine ${nameOf(event.process)} is killed.`;
    case "disconnected":
      return `Machine ${nameOf(event.process)} is cut off from the store.`;
    case "connected":
      return `Machine ${nameOf(event.process)} reaches the store again.`;
    case "leads":
      return `Machine ${nameOf(event.process)} takes the lead.`;
    case "leased":
      return `Machine ${nameOf(event.process)} has a lease.`;
    case "lapsed":
      return `The lease of machine ${nameOf(event.process)} ends: it starts no more calls.`;
    case "reclaimed":
      return `The leader takes back the share of machine ${nameOf(event.process)}, ${plural(event.slots, "slot")}. Those of calls that may be out stay reserved for ${span(ttl / 1e6)}.`;
    case "cut":
      return `The provider refuses calls, and the limit falls from ${count(event.from)} to ${count(event.to)}.`;
  }
}

/** How a machine is, as a short sentence. */
export function stateText({ is_alive, is_connected, share, in_flight, waiting, lease_ns }: ProcessSample) {
  if (!is_alive) return `${is_connected ? "Killed" : "Killed and cut off"}${in_flight > 0 ? `; ${plural(in_flight, "call")} still at the provider` : ""}.`;
  const calls = `${count(in_flight)} in flight, ${count(waiting)} ${waiting === 1 ? "waits" : "wait"}`;
  if (lease_ns > 0) return `Share ${count(share)}: ${calls}.`;
  return `${is_connected ? "Waits for a share" : "Cut off, so no share"}: ${calls}.`;
}
