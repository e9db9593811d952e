import { RequestGate, readHead } from "tidegate";
class ApiError extends Error {
    status;
    headers;
    constructor(status, headers) {
        super(`HTTP ${status}`);
        this.status = status;
        this.headers = headers;
    }
}
const gate = new RequestGate();
gate.register("provider/model", { maxParallel: 4 });
const answer = await gate.run("provider/model", async () => "an answer", {
    callTimeoutMs: 30_000,
    classify: (result) => "error" in result && result.error instanceof ApiError ? readHead(result.error) : undefined,
});
console.log(answer); // an answer
