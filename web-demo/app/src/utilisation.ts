// The one figure of utilisation on the page: what calls used of what the providers could truly serve.
import type { ProviderSpec, Rate } from "./pkg/tidegate_playground.js";

/** Capacities and limits from here up mean "no bound". */
export const UNBOUNDED = 2 ** 31;
/** How wide the history's first buckets are, in virtual ms; later ones are wider, all alike. */
const FIRST_WIDTH_MS = 1;

interface Provider {
  /** Its history: calls that it serves and its true capacity, by bucket. A call that it will refuse uses none of it. */
  inService: Float64Array;
  capacity: Float64Array;
  /** The calls it accepted so far. */
  accepted: number;
  /** Its limits per minute, where it has any. */
  limits: Pick<ProviderSpec, "requests" | "tokens"> | undefined;
}

/** What calls used of one provider, and of which limit: the one that binds. */
interface Use {
  /** Slot-time in virtual slot-ms: what calls took, and what there was while the limit left it. */
  used: number;
  available: number;
  of: "capacity" | "rate" | "tokens";
}

/**
 * Returns the share of what the providers could serve that calls have used so far, 0 to 1; NaN before the
 * start, where there is no bound, and where tokens are limited, which the page does not know of a call.
 * @param times where each bucket of the history begins, in virtual ms, and for the last one, which is open,
 * the present
 */
export function usedShare(providers: readonly Provider[], times: Float64Array) {
  return shareOf(providers.map((one) => useOf(one, times)));
}

/** The share as every view writes it. */
export function usedWords(share: number) {
  return Number.isNaN(share) ? "–" : `${(100 * share).toFixed(1)} %`;
}

/** The share that is used of one provider, in words that name the limit. Empty where there is no such share. */
export function useInWords(provider: Provider, times: Float64Array) {
  const use = useOf(provider, times);
  const share = shareOf([use]);
  if (use.of === "tokens") return "– of its tokens a minute used: not known here";
  if (Number.isNaN(share)) return "";
  return `${usedWords(share)} of ${use.of === "rate" ? "its calls a minute" : "the capacity"} used`;
}

function shareOf(uses: readonly Use[]) {
  const used = uses.reduce((sum, one) => sum + one.used, 0);
  const available = uses.reduce((sum, one) => sum + one.available, 0);
  return available > 0 ? used / available : Number.NaN;
}

function useOf({ inService, capacity, accepted, limits }: Provider, times: Float64Array): Use {
  const last = times.length - 1;
  const width = last > 1 ? (times[1] ?? 0) : FIRST_WIDTH_MS;
  const open = (times[last] ?? 0) - last * width;
  const rate = limits?.requests;
  let used = 0;
  let available = 0;
  for (let at = 0; at < times.length; at += 1) {
    const length = at === last ? open : width;
    const served = capacity[at] ?? 0;
    if (length <= 0 || (served >= UNBOUNDED && !rate)) continue;
    // After its capacity has fallen it may still serve more.
    used += Math.min(inService[at] ?? 0, served) * length;
    available += served * length;
  }
  if (limits?.tokens) return { used, available: Number.NaN, of: "tokens" };
  const share = rate ? accepted / mostCalls(rate, times[last] ?? 0) : 0;
  // Fewer calls in flight are enough to use up the rate.
  if (!rate || share * available < used) return { used, available, of: "capacity" };
  return { used, available: share > 0 ? used / share : 0, of: "rate" };
}

/** How many calls a rate lets through from the start to an instant in virtual ms. */
function mostCalls({ per_minute: perMinute, burst, window_ms: window }: Rate, now: number) {
  return (window ? (perMinute * window) / 60_000 : (burst ?? perMinute)) + (perMinute * now) / 60_000;
}
