import { RequestGate } from "tidegate";

const gate = new RequestGate();
gate.register("provider/model", { maxParallel: 4 });
using permit = await gate.acquire("provider/model");
// ... make the call ...
permit.finish("success");
export {};
