import { readFile } from "node:fs/promises";
import { replayDecisions } from "tidegate/replay";

const { equal } = replayDecisions(await readFile("run.jsonl", "utf8"));
export {};
