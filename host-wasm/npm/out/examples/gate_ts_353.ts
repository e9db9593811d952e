import { RequestGate } from "tidegate";

const gate = new RequestGate();
gate.register("provider/model", { maxParallel: 4 });
const unsubscribe = gate.subscribe(
  (event) => {
    if (event.kind === "limit_decreased") console.log(`${event.key}: ${event.from} -> ${event.to}`);
  },
  { kinds: ["limit_decreased", "limit_increased"] },
);
unsubscribe();
export {};
