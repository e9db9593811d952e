import { simulate } from "tidegate/sim";
const { run, providers } = simulate("falling-tide", 1);
console.log(run.rows_out, providers[0]?.refused);
