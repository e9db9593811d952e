import { DeniedError, RequestGate } from "tidegate";

const gate = new RequestGate();
gate.register("provider/model", { maxParallel: 1 });
using held = await gate.acquire("provider/model");
try {
  await gate.acquire("provider/model", { timeoutMs: 0 });
} catch (error) {
  if (!(error instanceof DeniedError)) throw error;
  console.log(error.reason); // queue_timeout
}
export {};
