/** What became of a call. */

import { onlyKnown, shown, spanMs, whole } from "./errors.js";

/**
 * How a call ended.
 *
 * | outcome | meaning | what the gate makes of it |
 * | --- | --- | --- |
 * | `success` | the provider answered | good news: the limit may rise |
 * | `rate_limited` | refused for too many calls: 429 and the like | a pause, and a lower limit |
 * | `provider_failure` | 5xx, or an answer that breaks off or cannot be read | neither |
 * | `provider_timeout` | the provider did not answer in time, or the call took longer than its `callTimeoutMs` | neither |
 * | `local_cancelled` | the caller gave up | neither; what it had reserved in budgets comes back |
 * | `local_timeout` | the caller's own deadline passed | neither |
 * | `unexpected` | something else went wrong on the caller's side | neither |
 * | `connection_failed` | no answer at all: the connection was refused, reset, or never made | neither; what it had reserved in budgets comes back |
 * | `request_rejected` | the provider refused this one request, and would refuse it again: most 4xx | neither; it counts as a request without tokens |
 * | `key_rejected` | the provider refused the key: 401 | the same |
 * | `quota_exhausted` | the account is out of funds or of quota: 402 | the same |
 * | `model_not_found` | the provider has no such model | the same |
 */
export type Outcome =
  | "success"
  | "rate_limited"
  | "provider_failure"
  | "provider_timeout"
  | "local_cancelled"
  | "local_timeout"
  | "unexpected"
  | "connection_failed"
  | "request_rejected"
  | "key_rejected"
  | "quota_exhausted"
  | "model_not_found";

/** @internal In the order of the core. */
export const OUTCOMES: readonly Outcome[] = [
  "success",
  "rate_limited",
  "provider_failure",
  "provider_timeout",
  "local_cancelled",
  "local_timeout",
  "unexpected",
  "connection_failed",
  "request_rejected",
  "key_rejected",
  "quota_exhausted",
  "model_not_found",
];

/** What a call uses or used of the token budgets, besides being one request. */
export interface Usage {
  /** Tokens sent. A whole number from 0 up; 0. */
  readonly inputTokens?: number | undefined;
  /** Tokens received. A whole number from 0 up; 0. */
  readonly outputTokens?: number | undefined;
}

/** How a call ended, with what the provider said about it. */
export interface Completion {
  /** How it ended. */
  readonly outcome: Outcome;
  /** The pause that the provider asked for together with a refusal, in milliseconds from 0 up. */
  readonly retryAfterMs?: number | undefined;
  /**
   * What the call used: it takes the place of its estimate in the budgets. Without it, the estimate stands.
   */
  readonly used?: Usage | undefined;
}

/** @internal An end of a call in numbers. */
export interface End {
  outcome: number;
  retryAfterMs: number;
  /** Below 0 if it is not known. */
  input: number;
  output: number;
}

/** The last one is of a head that was read: what it says was told before. */
const NAMES = ["outcome", "retryAfterMs", "used", "rateLimits"] as const;

/** @internal Checks an outcome and what goes with it. */
export function readEnd(given: Outcome | Completion): End {
  const completion: Completion = typeof given === "object" && given !== null ? given : { outcome: given };
  onlyKnown("a completion", completion, NAMES);
  const { retryAfterMs, used } = completion;
  const end = {
    outcome: outcomeNumber(completion.outcome),
    retryAfterMs: retryAfterMs === undefined ? NaN : spanMs("retryAfterMs", retryAfterMs),
    input: -1,
    output: 0,
  };
  if (used !== undefined) [end.input, end.output] = readUsage("used", used);
  return end;
}

/** @internal */
export function readUsage(what: string, usage: Usage): [number, number] {
  onlyKnown(what, usage, ["inputTokens", "outputTokens"]);
  return [
    whole(`${what}.inputTokens`, usage.inputTokens ?? 0),
    whole(`${what}.outputTokens`, usage.outputTokens ?? 0),
  ];
}

/** @internal */
export function outcomeNumber(outcome: Outcome): number {
  const number = OUTCOMES.indexOf(outcome);
  if (number < 0) throw new TypeError(`no outcome is called ${shown(outcome)}; there are ${OUTCOMES.join(", ")}`);
  return number;
}

/** @internal */
export const SUCCESS = 0;
/** @internal */
export const RATE_LIMITED = 1;
/** @internal */
export const PROVIDER_FAILURE = 2;
/** @internal */
export const PROVIDER_TIMEOUT = 3;
/** @internal */
export const LOCAL_CANCELLED = 4;
/** @internal */
export const LOCAL_TIMEOUT = 5;
/** @internal */
export const UNEXPECTED = 6;
/** @internal */
export const CONNECTION_FAILED = 7;

/** @internal What the name of an error says: who aborts or times out says so, in every platform alike. */
export function outcomeOfError(error: unknown, otherwise: number): number {
  const name = nameOf(error);
  // A client that gave its own request up says which it was. It was the provider who did not answer in time.
  if (name === "TimeoutError" && typeof error === "object" && error !== null && "request" in error) return PROVIDER_TIMEOUT;
  return name === "AbortError" ? LOCAL_CANCELLED : name === "TimeoutError" ? LOCAL_TIMEOUT : otherwise;
}

/** What platforms say when a connection breaks while the body of an answer comes. */
const BROKEN_BODIES = ["terminated", "network error", "Error in body stream", "error reading a body from connection"];
/** And when there is no connection, or it breaks before an answer. Node says it by the code of the cause. */
const FAILED_CONNECTIONS = [
  "Failed to fetch",
  "NetworkError when attempting to fetch resource.",
  "Load failed",
  "error sending request",
  "Unable to connect",
];
const TIMEOUT_CODES = /^(UND_ERR_HEADERS_TIMEOUT|UND_ERR_BODY_TIMEOUT)$/;
const CONNECTION_CODES = /^(ECONN\w+|EPIPE|ETIMEDOUT|ENOTFOUND|EAI_\w+|EHOST\w+|ENET\w+|UND_ERR_CONNECT_TIMEOUT|UND_ERR_SOCKET|Connection\w+)$/;

/**
 * What the errors of API clients say by their class, as those of OpenAI and Anthropic do, or by their code,
 * as those of axios.
 */
const CLIENT_ERRORS: readonly (readonly [pattern: RegExp, outcome: number])[] = [
  [/^(APIUserAbortError|ERR_CANCELED)$/, LOCAL_CANCELLED],
  [/^APIConnectionTimeoutError$/, PROVIDER_TIMEOUT],
  [/^(APIConnectionError|ERR_NETWORK)$/, CONNECTION_FAILED],
];

/** What axios says of a request that took too long: its code is that of a broken connection. */
const TIMED_OUT = /^timeout of \d+ ?ms exceeded/;

/** How far an error is followed to what caused it. */
const CAUSES = 4;

/**
 * @internal What an error of a client says about its connection, by its own words and code or those of its
 * causes; undefined for any other.
 */
export function outcomeOfConnection(thrown: unknown): number | undefined {
  let error = thrown;
  let ofClient: number | undefined;
  try {
    for (let depth = 0; depth < CAUSES && typeof error === "object" && error !== null; depth += 1) {
      const { name, message, code, cause } = error as { name?: unknown; message?: unknown; code?: unknown; cause?: unknown };
      const says = (words: string): boolean => name === "TypeError" && typeof message === "string" && message.startsWith(words);
      if (BROKEN_BODIES.some(says)) return PROVIDER_FAILURE;
      if (typeof code === "string" && (TIMEOUT_CODES.test(code) || (/^ECONNABORTED$/.test(code) && TIMED_OUT.test(String(message))))) {
        return PROVIDER_TIMEOUT;
      }
      if (typeof code === "string" && CONNECTION_CODES.test(code)) return CONNECTION_FAILED;
      if (FAILED_CONNECTIONS.some(says)) return CONNECTION_FAILED;
      const kinds = [error.constructor?.name, code];
      ofClient ??= CLIENT_ERRORS.find(([pattern]) => kinds.some((kind) => typeof kind === "string" && pattern.test(kind)))?.[1];
      error = cause;
    }
  } catch {
    // An error that cannot be read says nothing.
  }
  // What caused it says more.
  return ofClient;
}

/** @internal The name of an error; undefined if it has none, or none that can be read. */
export function nameOf(error: unknown): unknown {
  try {
    return typeof error === "object" && error !== null && "name" in error ? error.name : undefined;
  } catch {
    return undefined;
  }
}
