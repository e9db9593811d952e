import { RequestGate } from "tidegate";

const gate = new RequestGate();
gate.register("provider/model", { maxParallel: 1 });
console.log(gate.why("provider/model")); // undefined
using permit = await gate.acquire("provider/model");
console.log(gate.why("provider/model")?.text); // provider/model: all 1 calls that it may have out are out
permit.finish("success");
export {};
