/** The state of a gate: why calls wait, in words. */

import { inWords } from "../errors.js";
import type { CallWait, ShareState, UnavailableCause } from "../wasm/tidegate.js";
import type { Resource } from "./keys.js";
import type { Gate } from "./tickets.js";

export type { BudgetSnapshot, CallWait, Health, ResourceSnapshot, UnavailableCause } from "../wasm/tidegate.js";

const CAUSE_TEXTS: Readonly<Record<UnavailableCause, string>> = {
  outage: "it did not respond",
  key_rejected: "the API key is rejected",
  quota_exhausted: "the account is out of funds or quota",
  model_not_found: "there is no such model",
  rate_limited: "every call was rate limited",
  tls_failed: "its certificate is not accepted, only one side uses TLS, or it requires another version or a client certificate",
};

/** A reason without those of a shared limit, which have its state. */
type OwnWait = Exclude<CallWait, { kind: "share" }>;

/**
 * Why the first waiting call of a resource, or the next call if none waits, cannot start: see {@link CallWait}, and `shutdown`
 * for a gate that is shut down or has left a shared limit. `share`: the share of this process in a limit that several processes
 * {@link RequestGate.share} is reached, or the process has no share now.
 */
export type Why = (OwnWait | { readonly kind: "shutdown" } | { readonly kind: "share"; readonly state: ShareState }) & {
  /** The reason in words. */
  readonly text: string;
  /**
   * How many of the calls in flight hold their slot for a response body that is not being read. Only for `limit`,
   * `provider_cap` and `share`, and only if there are any.
   */
  readonly unreadBodies?: number;
};

/** Windows that have a name, by their milliseconds. */
const WINDOWS: Readonly<Record<number, string>> = {
  1_000: "a second",
  60_000: "a minute",
  3_600_000: "an hour",
  86_400_000: "a day",
};

/** @internal Returns why the next call of a resource cannot start now, or undefined if it can. */
export function whyOf(gate: Gate, resource: Resource, isShut: boolean): Why | undefined {
  const { name, number, shared } = resource;
  if (isShut) return { kind: "shutdown", text: `${name}: the gate is shut down` };
  const denial = shared?.denial();
  if (denial !== undefined) return { kind: "shutdown", text: denial.message };
  const wait = gate.why(number);
  if (wait?.kind !== "share") return wait && inFull(resource, wait);
  const state = shared?.state();
  if (state === undefined) return undefined;
  return withUnread(resource, { kind: "share", text: `${name}: ${wait.what}: ${state.text}`, state });
}

/** Adds the reason in words, and for a limit what {@link withUnread} adds. */
function inFull(resource: Resource, wait: OwnWait): Why {
  const why = { ...wait, text: `${resource.name}: ${textOf(wait)}` };
  return wait.kind === "limit" || wait.kind === "provider_cap" ? withUnread(resource, why) : why;
}

/** Adds how many of the calls in flight wait for their response bodies to be read. */
function withUnread({ unread }: Resource, why: Why): Why {
  if (unread === 0) return why;
  const bodies = unread === 1 ? "1 call waits for its response body to be read" : `${unread} calls wait for their response bodies to be read`;
  return { ...why, text: `${why.text}, and ${bodies}`, unreadBodies: unread };
}

function textOf(wait: OwnWait): string {
  switch (wait.kind) {
    case "cooldown":
      return `a cooldown is in force for another ${inWords(wait.endsInMs)}`;
    case "provider_cap":
      return `the limit of ${wait.cap} concurrent ${wait.cap === 1 ? "call" : "calls"} is reached`;
    case "limit": {
      const change = wait.changesInMs === undefined ? "" : `; it changes in ${inWords(wait.changesInMs)}`;
      return `the adaptive limit of ${wait.limit} is reached${change}`;
    }
    case "paced":
      return `calls are spaced in time; the next call starts in ${inWords(wait.opensInMs)}`;
    case "budget":
      return `a rate budget is spent for another ${inWords(wait.fitsInMs)}`;
    case "shared_budget":
      return wait.isKnown
        ? "it waits for its part of a budget that other processes share"
        : "it waits for a budget that the leading process does not have: give all the same budgets";
    case "stated_rate": {
      const window = WINDOWS[wait.windowMs] ?? `in ${inWords(wait.windowMs)}`;
      const rate = `${wait.limit} ${wait.dimension.replace("total_", "").replace("_", " ")} ${window}`;
      return `the provider's own limit of ${rate} is reached: next in ${inWords(wait.fitsInMs)}`;
    }
    case "outage":
      return `the provider is down; ${wait.probeInMs === undefined ? "a probe is in flight" : `the next probe is in ${inWords(wait.probeInMs)}`}`;
    case "unavailable": {
      const again = wait.probeInMs === undefined ? "" : `; the next probe is in ${inWords(wait.probeInMs)}`;
      return `it cannot be used: ${CAUSE_TEXTS[wait.cause]}${again}`;
    }
    case "task_slots":
      return "its worker has yielded and waits for its task resources";
    case "undecided":
      return "it failed, and other calls will show whether the provider is down";
    case "turn":
      return "another call goes first";
    case "paused":
      return "it is paused";
  }
}
