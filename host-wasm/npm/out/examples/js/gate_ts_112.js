import { RequestGate } from "tidegate";
const gate = new RequestGate({ cooldownMs: 1_000 });
gate.register("provider/writer", { maxParallel: 32, algorithm: "tide" });
gate.register({ provider: "provider", model: "writer", domain: "embedding" }, { maxParallel: 32, budgets: [{ dimension: "total_tokens", limit: 90_000 }] });
