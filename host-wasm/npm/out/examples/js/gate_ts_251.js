import { RequestGate } from "tidegate";
const gate = new RequestGate();
gate.register("provider/model", { maxParallel: 4 });
const answer = await gate.fetch("provider/model", "data:application/json,{}");
console.log(await answer.json()); // {}
