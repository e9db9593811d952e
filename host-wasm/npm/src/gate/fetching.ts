/** Calls of {@link RequestGate.fetch}: a request that is sent under a permit, which its answer holds. */

import { DeniedError, shown, spanMs } from "../errors.js";
import { holdBody } from "./body.js";
import { type Behalf, type CallResult, CallUnderWay } from "./call.js";
import type { Resource } from "./keys.js";
import { abandon, type Course, courseOf, type Ended, failureStands, isNobodys, retryInMs } from "./retries.js";
import type { HowToCall } from "./running.js";
import { type AcquireRequest, AGAIN, type AfterCall, type Waiter } from "./tickets.js";
import { CONNECTION_FAILED, PROVIDER_FAILURE, UNEXPECTED } from "../outcome.js";
import { maySayMore, type Sending, wholeOf } from "../response.js";

/** @internal */
export interface HowToFetch extends HowToCall<Response> {
  readonly retries?: number | undefined;
  readonly hold?: "body" | "head" | undefined;
  readonly bodyIdleMs?: number | undefined;
}

/** How long a body holds its slot that waits for its reader, where nobody says. */
const BODY_IDLE_MS = 2_000;

/** @internal A fetch that goes on once its call has a permit. */
class Fetching extends CallUnderWay<Response> {
  readonly resolve: (call: Fetching) => void;
  readonly refused: (error: unknown) => void;

  constructor(
    resource: Resource,
    request: AcquireRequest,
    { signal, classify, callTimeoutMs }: HowToCall<Response>,
    resolve: (call: Fetching) => void,
    reject: (error: unknown) => void,
    course: Course | undefined,
  ) {
    super(resource, request, signal, classify, callTimeoutMs, course);
    this.resolve = resolve;
    this.refused = reject;
  }

  granted(): void {
    this.begin();
    this.resolve(this);
  }

  /** What an error means that says nothing itself. */
  #otherwise = UNEXPECTED;

  /**
   * Sends the request, and reads what the head of its answer says, and the body of a refusal. The body of a
   * task's answer is read to its end, so that a call is made again whose answer breaks off.
   */
  async send(request: Sending): Promise<CallResult<Response>> {
    this.#otherwise = request.isSound() ? CONNECTION_FAILED : UNEXPECTED;
    try {
      const value = await request.send(this.signal, this.course?.isRepeated === true);
      this.#otherwise = PROVIDER_FAILURE;
      if (maySayMore(value)) await this.observeBody(value);
      else this.observe(value);
      return { value: this.course?.ended !== undefined && value.status < 400 ? await wholeOf(value) : value };
    } catch (error) {
      return { error };
    }
  }

  /** The call is over with what {@link send} brought. */
  over(result: CallResult<Response>): AfterCall {
    return "value" in result ? this.succeeded(result.value) : this.failed(result.error, this.#otherwise);
  }
}

/** @internal Asks for a permit for this call; the second time for the one that has just failed. */
export type Ask = (call: Waiter, isAgain: boolean) => void;

/**
 * @internal Fetches under a permit that `ask` asks for, which is held until the body of the answer has ended.
 */
export async function fetchUnder(
  resource: Resource,
  wanted: AcquireRequest,
  request: Sending,
  how: HowToFetch,
  behalf: Behalf | undefined,
  ask: Ask,
): Promise<Response> {
  const { hold = "body", bodyIdleMs: idle } = how;
  if (hold !== "body" && hold !== "head") throw new TypeError(`hold is ${shown(hold)}; expected "body" or "head"`);
  const holdsBody = hold === "body";
  const bodyIdleMs = idle === undefined ? BODY_IDLE_MS : spanMs("bodyIdleMs", idle);
  const course = courseOf(resource, how.retries, behalf?.ended, request.isRepeatable);
  // A refusal is over with its head, and so is a failure that may be made good.
  const isOver = (call: Fetching, { status }: Response): boolean =>
    course?.ended !== undefined || call.isRefused || (status >= 400 && (status < 500 || course?.retries !== undefined));
  let kept: Ended<Response> | undefined;
  for (;;) {
    let call: Fetching;
    try {
      call = await new Promise<Fetching>((resolve, reject) => {
        ask(new Fetching(resource, wanted, how, resolve, reject, course), kept !== undefined);
      });
    } catch (error) {
      if (kept !== undefined && failureStands(error)) return settle(kept, course);
      if (kept !== undefined) abandon(kept);
      throw error;
    }
    if (kept !== undefined) abandon(kept);
    const result = await call.send(request);
    if ("value" in result && holdsBody && !isOver(call, result.value)) return held(call, result.value, bodyIdleMs);
    const after = call.over(result);
    if (course === undefined) return brought(result);
    const end = { result, ending: course.ending };
    if (isNobodys(course, after)) {
      abandon(end);
      throw new DeniedError(resource.name, "unavailable", undefined);
    }
    if (after === AGAIN) {
      kept = end;
      continue;
    }
    kept = undefined;
    const pauseMs = retryInMs(course, after);
    if (Number.isNaN(pauseMs)) return settle(end, course);
    abandon(end);
    await new Promise<void>((resolve, reject) => resource.book.pauses.begin(resource, pauseMs, call.outer, resolve, reject));
  }
}

function settle({ result, ending }: Ended<Response>, course: Course | undefined): Response {
  course?.ended?.(ending, "error" in result ? result.error : undefined);
  return brought(result);
}

function brought(result: CallResult<Response>): Response {
  if ("error" in result) throw result.error;
  return result.value;
}

/** The answer, which ends its call when its body has ended. */
function held(call: Fetching, answer: Response, idleMs: number): Response {
  const { resource } = call;
  try {
    return holdBody(answer, idleMs, {
      waits: (isWaiting) => void (resource.unread += isWaiting ? 1 : -1),
      ended: (how, error, isOwed) => {
        const given = how === "given up" ? new DOMException("the body was given up", "AbortError") : error;
        if (how === "whole" || how === "unread") call.succeeded(answer);
        else call.failed(given, PROVIDER_FAILURE, isOwed);
        if (how === "unread") resource.book.leftUnread(resource, idleMs);
      },
    });
  } catch (error) {
    call.failed(error, PROVIDER_FAILURE);
    throw error;
  }
}
