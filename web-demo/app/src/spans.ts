// How the bindings write spans of worker slots into an array: see `readLanes`.

/** The numbers of a span: lane, start, end, column, kind. */
export const NUMBERS_PER_SPAN = 5;
/** The kinds of spans: local work, a wait for a call, and a call in flight. */
export const LOCAL = 0;
export const WAITING = 1;
export const CALLING = 2;
/** How many closed spans the scheduler's module keeps. */
export const SPANS_KEPT = 8_192;
