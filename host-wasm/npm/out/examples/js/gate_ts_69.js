import { RequestGate } from "tidegate";
const gate = new RequestGate();
gate.register("provider/model", { maxParallel: 16 });
const answer = await gate.run("provider/model", async (call) => {
    // Make the call, and hand `call.signal` on to it.
    return `aborted: ${call.signal.aborted}`;
});
console.log(answer); // aborted: false
