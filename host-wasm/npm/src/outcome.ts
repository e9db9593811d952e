/** Outcomes of calls, and how they are derived from errors. */

import { onlyKnown, shown, spanMs, whole } from "./errors.js";
import type { Outcome as CoreOutcome } from "./wasm/tidegate.js";
import { OUTCOMES } from "./wasm/tidegate_names.js";

/**
 * How a call ended.
 *
 * | outcome | meaning | effect on the limit |
 * | --- | --- | --- |
 * | `success` | the provider responded | it may increase |
 * | `rate_limited` | rejected for too many calls: 429 and the like | it decreases, and a cooldown may start |
 * | `provider_failure` | 5xx, or a response that breaks off or cannot be read | none |
 * | `provider_timeout` | the provider did not respond in time, or the call exceeded its `callTimeoutMs` | none |
 * | `local_cancelled` | the caller cancelled the call | none; its budget reservation is returned |
 * | `local_timeout` | the caller's own deadline passed | none |
 * | `unexpected` | another error on the caller's side | none |
 * | `connection_failed` | no response: the connection was refused, reset or never made | none; its budget reservation is returned |
 * | `request_rejected` | the provider rejected this request and would reject it again: most 4xx | none; it counts as a request without tokens |
 * | `key_rejected` | the provider rejected the API key: 401 | as `request_rejected` |
 * | `quota_exhausted` | the account is out of funds or quota: 402 | as `request_rejected` |
 * | `model_not_found` | the provider has no such model | as `request_rejected` |
 * | `tls_failed` | no response: the certificate is not accepted, only one side uses TLS, or the server requires another version or a client certificate | as `connection_failed` |
 */
export type Outcome = CoreOutcome;

/** What a call uses of the token budgets, besides being one request. */
export interface Usage {
  /** Tokens sent: a whole number from 0 up. Default: 0. */
  readonly inputTokens?: number | undefined;
  /** Tokens received: a whole number from 0 up. Default: 0. */
  readonly outputTokens?: number | undefined;
}

/** How a call ended, with details from the provider. */
export interface Completion {
  /** How it ended. */
  readonly outcome: Outcome;
  /** The Retry-After of a rate-limited call, in milliseconds from 0 up. */
  readonly retryAfterMs?: number | undefined;
  /** What the call used. It replaces the estimate in the budgets. Default: the estimate. */
  readonly used?: Usage | undefined;
}

/** @internal The end of a call in numbers. */
export interface End {
  outcome: number;
  retryAfterMs: number;
  /** Below 0 if the usage is not known. */
  input: number;
  output: number;
}

/** `rateLimits` is part of a {@link HeadReading}; it is accepted and not used. */
const NAMES = ["outcome", "retryAfterMs", "used", "rateLimits"] as const;

/** @internal Checks a completion and converts it to numbers. */
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
export const SUCCESS = outcomeNumber("success");
/** @internal */
export const RATE_LIMITED = outcomeNumber("rate_limited");
/** @internal */
export const PROVIDER_FAILURE = outcomeNumber("provider_failure");
/** @internal */
export const PROVIDER_TIMEOUT = outcomeNumber("provider_timeout");
/** @internal */
export const LOCAL_CANCELLED = outcomeNumber("local_cancelled");
/** @internal */
export const LOCAL_TIMEOUT = outcomeNumber("local_timeout");
/** @internal */
export const UNEXPECTED = outcomeNumber("unexpected");
/** @internal */
export const CONNECTION_FAILED = outcomeNumber("connection_failed");
/** @internal */
export const TLS_FAILED = outcomeNumber("tls_failed");

/**
 * @internal Returns the outcome that the name of an error implies. `AbortError` and `TimeoutError` have the
 * same names on every platform.
 */
export function outcomeOfError(error: unknown, otherwise: number): number {
  const name = nameOf(error);
  // A timeout error with a `request` comes from a client's own timeout: the provider did not respond in time.
  if (name === "TimeoutError" && typeof error === "object" && error !== null && "request" in error) return PROVIDER_TIMEOUT;
  return name === "AbortError" ? LOCAL_CANCELLED : name === "TimeoutError" ? LOCAL_TIMEOUT : otherwise;
}

/** Messages of platforms for a connection that breaks during the body of a response. */
const BROKEN_BODIES = ["terminated", "network error", "Error in body stream", "error reading a body from connection"];
/** Messages for a connection that fails before a response. Node reports it in the code of the cause. */
const FAILED_CONNECTIONS = [
  "Failed to fetch",
  "NetworkError when attempting to fetch resource.",
  "Load failed",
  "error sending request",
  "Unable to connect",
];
const TIMEOUT_CODES = /^(UND_ERR_HEADERS_TIMEOUT|UND_ERR_BODY_TIMEOUT)$/;
/** Codes of Node, for a certificate that is not accepted. */
const CERTIFICATE_CODES =
  /^(CERT_\w+|DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_GET_ISSUER_CERT(_LOCALLY)?|UNABLE_TO_VERIFY_LEAF_SIGNATURE|ERR_TLS_CERT_ALTNAME_INVALID)$/;
/**
 * Codes of OpenSSL in Node, for a server without TLS or without a version and a cipher that both sides know, and for one that
 * requires a client certificate. Two names differ from OpenSSL 3.2 on. Other alerts may be those of a server that is overloaded
 * or starts. With TLS 1.3, `fetch` of Node reports a missing client certificate as a closed connection.
 */
const HANDSHAKE_CODES =
  /^ERR_SSL_(WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG|UNSUPPORTED_PROTOCOL|TLSV1_ALERT_(PROTOCOL_VERSION|INSUFFICIENT_SECURITY)|TLSV1_UNRECOGNIZED_NAME|TLSV13_ALERT_CERTIFICATE_REQUIRED|(SSLV3|SSL\/TLS)_ALERT_(HANDSHAKE_FAILURE|BAD_CERTIFICATE))$/;
const CONNECTION_CODES = /^(ECONN\w+|EPIPE|ETIMEDOUT|ENOTFOUND|EAI_\w+|EHOST\w+|ENET\w+|UND_ERR_CONNECT_TIMEOUT|UND_ERR_SOCKET|Connection\w+)$/;

/**
 * Outcomes by the class of an API client's error, as in the clients of OpenAI and Anthropic, or by its code,
 * as in axios.
 */
const CLIENT_ERRORS: readonly (readonly [pattern: RegExp, outcome: number])[] = [
  [/^(APIUserAbortError|ERR_CANCELED)$/, LOCAL_CANCELLED],
  [/^APIConnectionTimeoutError$/, PROVIDER_TIMEOUT],
  [/^(APIConnectionError|ERR_NETWORK)$/, CONNECTION_FAILED],
];

/** The message of axios for a timeout, whose code is the one of a broken connection. */
const TIMED_OUT = /^timeout of \d+ ?ms exceeded/;

/** How many errors of a `cause` chain are read. */
const CAUSES = 4;

/**
 * @internal Returns the outcome of a connection error, by message or code of the error or of its causes;
 * undefined for any other error.
 */
export function outcomeOfConnection(thrown: unknown): number | undefined {
  let error = thrown;
  let ofClient: number | undefined;
  try {
    for (let depth = 0; depth < CAUSES && typeof error === "object" && error !== null; depth += 1) {
      const { name, message, code, cause } = error as { name?: unknown; message?: unknown; code?: unknown; cause?: unknown };
      const startsWith = (text: string): boolean => name === "TypeError" && typeof message === "string" && message.startsWith(text);
      if (BROKEN_BODIES.some(startsWith)) return PROVIDER_FAILURE;
      if (typeof code === "string" && (TIMEOUT_CODES.test(code) || (/^ECONNABORTED$/.test(code) && TIMED_OUT.test(String(message))))) {
        return PROVIDER_TIMEOUT;
      }
      if (typeof code === "string" && (CERTIFICATE_CODES.test(code) || HANDSHAKE_CODES.test(code))) return TLS_FAILED;
      if (typeof code === "string" && CONNECTION_CODES.test(code)) return CONNECTION_FAILED;
      if (FAILED_CONNECTIONS.some(startsWith)) return CONNECTION_FAILED;
      const kinds = [error.constructor?.name, code];
      ofClient ??= CLIENT_ERRORS.find(([pattern]) => kinds.some((kind) => typeof kind === "string" && pattern.test(kind)))?.[1];
      error = cause;
    }
  } catch {
    // An error whose properties throw determines no outcome.
  }
  // A cause is more specific, so the client's error counts last.
  return ofClient;
}

/** @internal Returns the name of an error; undefined if it has none or reading it throws. */
export function nameOf(error: unknown): unknown {
  try {
    return typeof error === "object" && error !== null && "name" in error ? error.name : undefined;
  } catch {
    return undefined;
  }
}
