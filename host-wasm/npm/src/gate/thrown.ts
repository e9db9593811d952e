/** What an error that an API client throws says about the answer to its call. */

import type { AnswerHead } from "../response.js";
import { isResponse, LONGEST_ERROR } from "../response.js";

/** The answer that an error is about. */
export interface ThrownAnswer extends AnswerHead {
  /** Its body as JSON, if the client has read it. */
  readonly body: string | undefined;
  /** The answer itself, if the client hands it out: its body may be there to read. */
  readonly response: Response | undefined;
}

/** How far an error is followed to what caused it. */
const CAUSES = 4;

/**
 * The answer of an error from 400 to 599, or of what caused it; undefined for an error that is about none.
 * Read are `status` or `statusCode` and `headers` of the error itself (OpenAI, Anthropic, superagent) and of
 * its `response` (axios, ky, got); headers are a `Headers` or a plain object.
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
        const own = holder === error ? error["error"] : holder["data"];
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
    // An error that cannot be read says nothing.
  }
  return undefined;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}

/** The status of a refusal or a failure. */
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

/** A header that came several times is a list in some clients. */
function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : Array.isArray(value) ? value.join(", ") : undefined;
}

function jsonOf(body: unknown): string | undefined {
  const text = isObject(body) ? JSON.stringify(body) : body;
  return typeof text === "string" && text.length <= LONGEST_ERROR ? text : undefined;
}
