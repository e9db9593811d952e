/** Calls of {@link RequestGate.fetch}: requests sent under a permit, which the response holds. */

import { shown, spanMs } from "../errors.js";
import { holdBody } from "./body.js";
import { OwnSignal } from "./own_signal.js";
import { CallUnderWay } from "./call.js";
import type { CallResult, TaskBinding } from "./ending.js";
import type { Resource } from "./keys.js";
import { type Ask, type Attempt, attemptUntilFinal, discardBody, type RetryState, retryStateOf } from "./retries.js";
import type { CallSettings } from "./running.js";
import type { AcquireRequest, AfterCall } from "./tickets.js";
import { CONNECTION_FAILED, outcomeOfConnection, PROVIDER_FAILURE, UNEXPECTED } from "../outcome.js";
import { isReadableRefusal, type OutgoingRequest, readWhole } from "../response.js";

/** @internal */
export interface FetchSettings extends CallSettings<Response> {
  readonly retries?: number | undefined;
  readonly hold?: "body" | "head" | undefined;
  readonly bodyIdleMs?: number | undefined;
}

/** The default of `bodyIdleMs`. */
const BODY_IDLE_MS = 2_000;

/** @internal A fetch that is sent once its call has a permit. */
class Fetching extends CallUnderWay<Response> implements Attempt<Response> {
  readonly outgoing: OutgoingRequest;
  readonly hold: "body" | "head" | undefined;
  /** Whether the body of the response ends the call. */
  isHeld = false;
  readonly resolve: (call: Fetching) => void;
  readonly rejected: (error: unknown) => void;

  constructor(
    resource: Resource,
    request: AcquireRequest,
    outgoing: OutgoingRequest,
    { signal, classify, callTimeoutMs, hold }: FetchSettings,
    resolve: (call: Fetching) => void,
    reject: (error: unknown) => void,
    retryState: RetryState | undefined,
  ) {
    super(resource, request, signal, classify, callTimeoutMs, retryState);
    this.outgoing = outgoing;
    this.hold = hold;
    this.resolve = resolve;
    this.rejected = reject;
  }

  granted(): void {
    this.begin();
    this.resolve(this);
  }

  #own: OwnSignal | undefined;

  /**
   * `fetch` adds a listener to the signal of each request. So the request has a signal of its own, also without a
   * timeout.
   */
  override begin(): void {
    if (this.outer !== undefined || this.timeoutMs !== undefined) {
      this.noted.own = this.#own = new OwnSignal(this.outer, this.timeoutMs);
    }
  }

  /** The caller's signal aborts the request as long as its response can be read, which can be after the call. */
  protected override endSignal(): void {}

  /** Ends the link to the caller's signal: the response has arrived, or it is not read. */
  unlink(): void {
    this.#own?.unlink();
    this.#own = undefined;
  }

  /** The outcome of an error that does not determine one. */
  #otherwise = UNEXPECTED;

  /**
   * Sends the request, and reads the head of its response and the body of an error response. The response to
   * a pipeline task is read to its end, so that a call whose response breaks off can be made again.
   */
  async make(): Promise<CallResult<Response>> {
    const request = this.outgoing;
    this.#otherwise = request.isValid() ? CONNECTION_FAILED : UNEXPECTED;
    try {
      const value = await request.send(this.signal, this.retryState?.isRepeated === true);
      this.#otherwise = PROVIDER_FAILURE;
      if (isReadableRefusal(value)) await this.observeBody(value);
      else this.observe(value);
      if (this.retryState?.ended === undefined || value.status >= 400) return { value };
      const whole = await readWhole(value);
      this.unlink();
      return { value: whole };
    } catch (error) {
      // Without a response, the error says more: of TLS, or that the response is late.
      if (this.#otherwise === CONNECTION_FAILED) this.#otherwise = outcomeOfConnection(error) ?? CONNECTION_FAILED;
      return { error };
    }
  }

  end(result: CallResult<Response>): AfterCall | undefined {
    if ("value" in result && this.hold !== "head" && !this.#endsWithHead(result.value)) {
      this.isHeld = true;
      return undefined;
    }
    if ("error" in result) {
      this.unlink();
      return this.failed(result.error, this.#otherwise);
    }
    this.#own?.unlinkAfter(result.value.body);
    return this.succeeded(result.value);
  }

  /** An error response ends its call with its head, and so does a failure that can be retried. */
  #endsWithHead({ status }: Response): boolean {
    const { retryState } = this;
    if (retryState?.ended !== undefined || this.isRefused) return true;
    return status >= 400 && (status < 500 || retryState?.retries !== undefined);
  }

  discard(result: CallResult<Response>): void {
    discardBody(result);
    this.unlink();
  }
}

/**
 * @internal Fetches under a permit that `ask` requests. The permit is held until the body of the response has
 * ended.
 */
export async function fetchUnder(
  resource: Resource,
  wanted: AcquireRequest,
  request: OutgoingRequest,
  how: FetchSettings,
  binding: TaskBinding | undefined,
  ask: Ask,
): Promise<Response> {
  const { hold = "body", bodyIdleMs: idle } = how;
  if (hold !== "body" && hold !== "head") throw new TypeError(`hold is ${shown(hold)}; expected "body" or "head"`);
  const bodyIdleMs = idle === undefined ? BODY_IDLE_MS : spanMs("bodyIdleMs", idle);
  const retryState = retryStateOf(resource, how.retries, binding?.ended, request.isRepeatable);
  const { attempt, result } = await attemptUntilFinal<Response, Fetching>(resource, retryState, how.signal, (isAfterOutage) =>
    new Promise((resolve, reject) => {
      ask(new Fetching(resource, wanted, request, how, resolve, reject, retryState), isAfterOutage);
    }),
  );
  if ("error" in result) throw result.error;
  return attempt.isHeld ? held(attempt, result.value, bodyIdleMs) : result.value;
}

/** Returns the response. The call ends when its body has ended. */
function held(call: Fetching, answer: Response, idleMs: number): Response {
  const { resource } = call;
  try {
    return holdBody(answer, idleMs, {
      waits: (isWaiting) => void (resource.unread += isWaiting ? 1 : -1),
      over: () => call.unlink(),
      ended: (how, error, isProviderTurn) => {
        const given = how === "cancelled" ? new DOMException("the body was cancelled", "AbortError") : error;
        if (how === "complete" || how === "unread") call.succeeded(answer);
        else call.failed(given, PROVIDER_FAILURE, isProviderTurn);
        if (how === "unread") resource.registry.onBodyUnread(resource, idleMs);
      },
    });
  } catch (error) {
    call.failed(error, PROVIDER_FAILURE);
    call.unlink();
    throw error;
  }
}
