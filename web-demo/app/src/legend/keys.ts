// What the pictures draw. Every legend has the same names, marks and colours (see Key.svelte), in this order.

export const KEYS = {
  // Calls to a provider.
  waiting: "waiting",
  "in-flight": "in flight",
  limit: "limit",
  shares: "sum of the shares",
  capacity: "can take",
  refused: "refused (429)",
  cooling: "cooldown",
  // Tasks of a pipeline.
  done: "done",
  calling: "calling",
  working: "working",
  awaiting: "waiting for a call",
  queued: "queued",
  failed: "failed or dropped",
  skipped: "skipped",
  // The time of slots.
  busy: "busy",
  starved: "starved",
  frontier: "nothing to do",
} as const;

export type KeyName = keyof typeof KEYS;
