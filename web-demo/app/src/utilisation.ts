// The one figure of utilisation on the page: what calls used of what the providers could truly serve.

/** Capacities and limits from here up mean "no bound". */
export const UNBOUNDED = 2 ** 31;
/** How wide the history's first buckets are, in virtual ms; later ones are wider, all alike. */
const FIRST_WIDTH_MS = 1;

/** A provider's history: calls in flight and its true capacity, by bucket. */
interface Levels {
  inFlight: Float64Array;
  capacity: Float64Array;
}

/**
 * Returns the share of the providers' true capacity that calls have used so far, 0 to 1; NaN before the start
 * and where there is no bound.
 * @param times where each bucket of the history begins, in virtual ms, and for the last one, which is open,
 * the present
 */
export function usedShare(providers: readonly Levels[], times: Float64Array) {
  const last = times.length - 1;
  const width = last > 1 ? (times[1] ?? 0) : FIRST_WIDTH_MS;
  const open = (times[last] ?? 0) - last * width;
  let used = 0;
  let available = 0;
  for (const { inFlight, capacity } of providers) {
    for (let at = 0; at < times.length; at += 1) {
      const length = at === last ? open : width;
      const served = capacity[at] ?? 0;
      if (length <= 0 || served >= UNBOUNDED) continue;
      used += Math.min(inFlight[at] ?? 0, served) * length;
      available += served * length;
    }
  }
  return available > 0 ? used / available : Number.NaN;
}
