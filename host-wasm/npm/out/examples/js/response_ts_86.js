import { readHead } from "tidegate";
const said = readHead({ status: 429, headers: new Headers({ "retry-after": "1.5" }) });
console.log(said.outcome, said.retryAfterMs); // rate_limited 1500
