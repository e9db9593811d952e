/** Calls of {@link RequestGate.run}: a function that is called under a permit. */

import { DeniedError } from "../errors.js";
import { type Behalf, type Call, type CallResult, CallUnderWay, type Classify } from "./call.js";
import type { Resource } from "./keys.js";
import { abandon, type Ended, failureStands, retriesOf } from "./retries.js";
import { answerOfThrown } from "./thrown.js";
import { AGAIN, type AfterCall, type Waiter } from "./tickets.js";
import { outcomeOfConnection, UNEXPECTED } from "../outcome.js";
import { maySayMore } from "../response.js";

/** @internal */
export interface HowToCall<T> {
  readonly signal?: AbortSignal | null | undefined;
  readonly classify?: Classify<T> | undefined;
  readonly callTimeoutMs?: number | undefined;
  readonly retries?: number | undefined;
}

/** @internal Asks for a permit for a call that was made before; `isAfterOutage` says that the core has kept it. */
export type AskAgain = (call: Waiter, how: object, isAfterOutage: boolean) => void;

/** @internal A function that is called once its call has a permit. */
export class Running<T> extends CallUnderWay<T> {
  readonly fn: (call: Call) => T | PromiseLike<T>;
  readonly resolve: (value: T) => void;
  readonly reject: (error: unknown) => void;
  readonly behalf: Behalf | undefined;
  readonly how: HowToCall<T>;
  /** Asks for the call again: one function for all calls of a gate. */
  readonly again: AskAgain;
  /** How it failed, while it is to be made again. */
  #kept: Ended<T> | undefined = undefined;

  constructor(
    resource: Resource,
    fn: (call: Call) => T | PromiseLike<T>,
    how: HowToCall<T>,
    resolve: (value: T) => void,
    reject: (error: unknown) => void,
    behalf: Behalf | undefined,
    again: AskAgain,
  ) {
    const { signal, classify, callTimeoutMs, retries } = how;
    const isOfTask = behalf?.ended !== undefined;
    const backoff = retriesOf(resource, retries);
    super(resource, signal, classify, callTimeoutMs, isOfTask, isOfTask || backoff !== undefined, backoff);
    this.how = how;
    this.fn = fn;
    this.resolve = resolve;
    this.reject = reject;
    this.behalf = behalf;
    this.again = again;
  }

  granted(): void {
    if (this.#kept !== undefined) abandon(this.#kept);
    this.#kept = undefined;
    this.begin();
    const { fn } = this;
    const failed = (error: unknown): void => this.#threw(error);
    try {
      Promise.resolve(fn(this)).then((value) => {
        if (maySayMore(value) && this.notes?.observed !== value) {
          return this.#observeFor(value, () => this.#tell({ value }, this.succeeded(value)));
        }
        const after = this.succeeded(value);
        // Most calls are made once, and no task hears of them.
        if (this.isRepeated) this.#tell({ value }, after);
        else this.resolve(value);
        return undefined;
      }, failed);
    } catch (error) {
      failed(error);
    }
  }

  #threw(error: unknown): void {
    const over = (): void => this.#tell({ error }, this.failed(error, outcomeOfConnection(error) ?? UNEXPECTED));
    const response = this.notes?.observed === undefined ? answerOfThrown(error)?.response : undefined;
    if (maySayMore(response)) void this.#observeFor(response, over);
    else over();
  }

  /** Reads a refusal with its body, and then goes on. */
  async #observeFor(answer: Response, goOn: () => void): Promise<void> {
    try {
      await this.observeBody(answer);
    } catch {
      // Its head cannot be read: so it counts as unexpected.
    }
    goOn();
  }

  refused(error: unknown): void {
    const kept = this.#kept;
    if (kept !== undefined && failureStands(error)) return this.#settle(kept);
    if (kept !== undefined) abandon(kept);
    this.reject(error);
  }

  #tell(result: CallResult<T>, after: AfterCall): void {
    const ended = { result, ending: this.ending };
    if (this.isNobodys(after)) {
      abandon(ended);
      this.reject(new DeniedError(this.resource.name, "unavailable", undefined));
    } else if (after === AGAIN) {
      this.#kept = ended;
      this.again(this, this.how, true);
    } else {
      const retryInMs = this.retryInMs(after);
      if (Number.isNaN(retryInMs)) return this.#settle(ended);
      abandon(ended);
      this.resource.book.pauses.begin(this.resource, retryInMs, this.outer, () => this.again(this, this.how, false), this.reject);
    }
  }

  #settle({ result, ending }: Ended<T>): void {
    this.behalf?.ended?.(ending, "error" in result ? result.error : undefined);
    if ("value" in result) this.resolve(result.value);
    else this.reject(result.error);
  }
}
