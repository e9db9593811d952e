// Compiled and not run, with no library but that of the language: no DOM, no Node.

import { type FetchOptions, Pipeline, RequestGate, readHead } from "tidegate";
import { simulate } from "tidegate/sim";

const gate = new RequestGate();
gate.register("provider/writer", { maxParallel: 4 });
const answer: number = await gate.run("provider/writer", (call) => (call.signal.aborted ? 1 : 2));
const permit = await gate.acquire("provider/writer", { timeoutMs: 5 });
permit.finish({ outcome: "rate_limited", retryAfterMs: answer });
const options: FetchOptions = { hold: "head" };
const response = await gate.fetch("provider/writer", "http://127.0.0.1/", { method: "POST" }, options);
readHead({ status: response.status, headers: new Map<string, string>() });
export { Pipeline, simulate };
