import { RequestGate } from "tidegate";

const gate = new RequestGate();
gate.register("provider/model", { maxParallel: 8 });
gate.tenant("people", 4);
gate.tenant("batch", 1);
using permit = await gate.acquire("provider/model", { tenant: "people" });
permit.finish("success");
export {};
