import { RequestGate } from "tidegate";

const gate = new RequestGate();
gate.register("provider/model", { maxParallel: 2 });
const permit = await gate.acquire("provider/model", { timeoutMs: 5_000, signal: AbortSignal.timeout(60_000) });
try {
  // ... make the call ...
  permit.finish("success");
} finally {
  // Does nothing if it is finished.
  permit.finish("unexpected");
}
export {};
