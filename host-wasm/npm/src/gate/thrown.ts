/** Reads the HTTP response that an error of an API client describes. */

import type { AnswerHead } from "../response.js";
import { isResponse, LONGEST_ERROR } from "../response.js";

/** The response that an error describes. */
export interface ThrownAnswer extends AnswerHead {
  /** Its body as JSON, if the client has read it. */
  readonly body: string | undefined;
  /** The response itself, if the error carries it. Its body may still be readable. */
  readonly response: Response | undefined;
}

/** How many errors of a `cause` chain are read. */
const CAUSES = 4;

/**
 * Returns the response, with a status from 400 to 599, of an error or of one of its causes; undefined if
 * there is none. Reads `status` or `statusCode` and `headers` of the error itself (OpenAI, Anthropic,
 * superagent) and of its `response` (axios, ky, got). Headers are a `Headers` or a plain object.
 */
export function answerOfThrown(thrown: unknown): ThrownAnswer | undefined {
  let error = thrown;
  try {
    for (let depth = 0; depth < CAUSES && isObject(error); depth += 1) {
      const { response } = error;
      const holder = isObject(response) && statusOf(response) !== undefined ? response : error;
      const status = statusOf(holder);
      if (status !== undefined) {
        const headers = holder["headers"];
        const own = holder === error ? error["error"] : (holder["data"] ?? readBodyOf(holder));
        return {
          status,
          headers: { get: (name) => headerOf(headers, name) },
          body: jsonOf(own ?? error["data"]),
          response: [response, error].find(isResponse),
        };
      }
      error = error["cause"];
    }
  } catch {
    // An error whose properties throw has no response.
  }
  return undefined;
}

/** Returns the body that got has read, as text or parsed. The body of a `Response` is a stream. */
function readBodyOf({ body }: Readonly<Record<string, unknown>>): unknown {
  return typeof body === "string" || (isObject(body) && Object.getPrototypeOf(body) === Object.prototype) ? body : undefined;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}

/** Returns the status if it is an error status. */
function statusOf(holder: Readonly<Record<string, unknown>>): number | undefined {
  const status = holder["status"] ?? holder["statusCode"];
  return typeof status === "number" && status >= 400 && status <= 599 ? status : undefined;
}

function headerOf(headers: unknown, name: string): string | undefined {
  if (!isObject(headers)) return undefined;
  if (typeof headers["get"] === "function") return textOf(headers["get"](name));
  const key = Object.keys(headers).find((key) => key.toLowerCase() === name);
  return key === undefined ? undefined : textOf(headers[key]);
}

/** Some clients represent a repeated header as an array. */
function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : Array.isArray(value) ? value.join(", ") : undefined;
}

function jsonOf(body: unknown): string | undefined {
  const text = isObject(body) ? JSON.stringify(body) : body;
  return typeof text === "string" && text.length <= LONGEST_ERROR ? text : undefined;
}
