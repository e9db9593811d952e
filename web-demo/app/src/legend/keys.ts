// What the pictures draw. Every legend has the same names, marks and colours (see Key.svelte), in this order.

/** A call and the task that makes it are in the same state. */
const WAITING = "waiting";
const IN_FLIGHT = "in flight";

export const KEYS = {
  // Calls to a provider.
  waiting: WAITING,
  "in-flight": IN_FLIGHT,
  limit: "limit",
  shares: "sum of the shares",
  capacity: "can take",
  refused: "refused (429)",
  cooling: "cooldown",
  // Tasks of a pipeline.
  done: "done",
  calling: IN_FLIGHT,
  working: "working",
  awaiting: WAITING,
  queued: "queued",
  failed: "failed or dropped",
  skipped: "skipped",
  // The time of slots.
  busy: "busy",
  starved: "free though work waits",
  frontier: "nothing to do",
} as const;

export type KeyName = keyof typeof KEYS;
