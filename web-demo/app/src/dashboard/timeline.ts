// Which stretch of virtual time a timeline shows. It follows the run until a person zooms or pans.

/** The shortest stretch that is shown, in ms. */
const LEAST_MS = 20;

export class Timeline {
  #now = 0;
  /** How much is shown while it follows the run and is not zoomed. */
  #usualMs = 1;
  #zoomedMs: number | undefined;
  /** The right end, where it does not follow the run. */
  #end: number | undefined;

  /** The run has come to `now`. All are virtual ms. */
  follow(now: number, usualMs: number) {
    this.#now = now;
    this.#usualMs = usualMs;
    // The run was taken back.
    if (this.#end !== undefined && this.#end >= now) this.#end = undefined;
  }

  get span() {
    return Math.min(this.#zoomedMs ?? this.#usualMs, this.#longest);
  }

  get from() {
    return Math.max(0, (this.#end ?? this.#now) - this.span);
  }

  get to() {
    return this.from + this.span;
  }

  /** Whether it shows what it shows by itself. */
  get isUsual() {
    return this.#zoomedMs === undefined && this.#end === undefined;
  }

  reset() {
    this.#zoomedMs = this.#end = undefined;
  }

  /** Shows `factor` times as much; the instant `around` stays where it is. */
  zoom(factor: number, around: number) {
    const share = (around - this.from) / this.span;
    const span = Math.min(Math.max(this.span * factor, LEAST_MS), this.#longest);
    const end = around + (1 - share) * span;
    this.#zoomedMs = span;
    this.#stopAt(end);
  }

  pan(ms: number) {
    this.#zoomedMs ??= this.span;
    this.#stopAt((this.#end ?? this.#now) + ms);
  }

  /** Pans as little as is needed to show an instant. */
  reveal(ms: number) {
    if (ms < this.from) this.pan(ms - this.from);
    else if (ms > this.to) this.pan(ms - this.to);
  }

  get #longest() {
    return Math.max(this.#now, this.#usualMs);
  }

  #stopAt(end: number) {
    this.#end = end >= this.#now ? undefined : Math.max(end, Math.min(this.span, this.#now));
  }
}
