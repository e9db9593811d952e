// What each request of a run does, read from the spans of its worker slots. A slot holds one request from its
// first wait to its answer, and then the next one.

import { CALLING, NUMBERS_PER_SPAN, WAITING } from "../spans.ts";

/** A refusal of a mock provider takes 5 ms; no answer is nearly as fast. In virtual ms. */
const REFUSAL_MS = 5.001;

/** The request in one slot. Instants are virtual milliseconds. */
export interface Request {
  since: number;
  refusals: number;
  /** When its present call started; undefined while it waits. */
  calledAt: number | undefined;
  /** When it was last refused; negative infinity before. */
  refusedAt: number;
  /**
   * The provider's place that serves its call; negative while it is not known whether the provider takes it.
   */
  place: number;
}

/** A request that was answered: it leaves the picture. */
export interface Answered {
  at: number;
  since: number;
  refusals: number;
  lane: number;
  place: number;
}

/** How long an answered request is remembered, in virtual ms. */
const REMEMBERED_MS = 2_500;

export class Requests {
  lanes: (Request | undefined)[] = [];
  answered: Answered[] = [];
  #places: boolean[] = [];
  /** By lane, up to when its spans have been read. */
  #readUntil: number[] = [];
  #now = 0;

  /**
   * Reads the spans that are new at `now`. They come in the order of their ends; one that goes on ends now,
   * unless the run has ended. Spans may be missing where pictures lie far apart.
   */
  read(spans: Float64Array, count: number, now: number, hasEnded: boolean) {
    if (now < this.#now) this.clear();
    this.#now = now;
    const isInUse: boolean[] = [];
    for (let index = 0; index < count; index += 1) {
      const [lane = 0, start = 0, end = 0, , kind = 0] = spans.subarray(NUMBERS_PER_SPAN * index, NUMBERS_PER_SPAN * (index + 1));
      const isClosed = end < now || hasEnded;
      if (!isClosed) isInUse[lane] = true;
      if (end > (this.#readUntil[lane] ?? -1)) this.#readSpan(lane, start, end, kind, isClosed);
    }
    this.lanes.forEach((_, lane) => {
      if (!isInUse[lane]) this.#drop(lane);
    });
    const first = this.answered.findIndex(({ at }) => at >= now - REMEMBERED_MS);
    this.answered = first < 0 ? [] : this.answered.slice(first);
  }

  clear() {
    this.lanes = [];
    this.answered = [];
    this.#places = [];
    this.#readUntil = [];
    this.#now = 0;
  }

  #readSpan(lane: number, start: number, end: number, kind: number, isClosed: boolean) {
    if (kind !== WAITING && kind !== CALLING) return;
    // What lies between was missed: it is another request, or at least another part of its story.
    if (start > (this.#readUntil[lane] ?? start)) this.#drop(lane);
    const request = (this.lanes[lane] ??= { since: start, refusals: 0, calledAt: undefined, refusedAt: Number.NEGATIVE_INFINITY, place: -1 });
    if (kind === CALLING) {
      request.calledAt = start;
      if (request.place < 0 && end - start > REFUSAL_MS) request.place = this.#take();
    }
    if (!isClosed) return;
    this.#readUntil[lane] = end;
    if (kind === WAITING) return;
    if (end - start <= REFUSAL_MS) {
      request.refusals += 1;
      request.refusedAt = end;
      request.calledAt = undefined;
    } else {
      // A call that came and went between two pictures left through the first place.
      this.answered.push({ at: end, since: request.since, refusals: request.refusals, lane, place: Math.max(request.place, 0) });
      this.#drop(lane);
    }
  }

  /** Forgets the request in a lane. */
  #drop(lane: number) {
    const place = this.lanes[lane]?.place ?? -1;
    if (place >= 0) this.#places[place] = false;
    this.lanes[lane] = undefined;
  }

  /** Takes the first free place of the provider. */
  #take() {
    const free = this.#places.indexOf(false);
    const place = free < 0 ? this.#places.length : free;
    this.#places[place] = true;
    return place;
  }
}
