// The official OpenAI client for Node through `tidegate proxy`, before a provider that pushes back (`tidegate mock`).
//
// Run by ./run, which sets TIDEGATE to the program. Every test names what a user of the proxy may rely on.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once, setMaxListeners } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import OpenAI from "openai";
import { until } from "../patience.mjs";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const messages = [{ role: "user", content: "the breakwater lamp failed" }];
const CLIENTS = 200;

/** A subcommand of tidegate that serves, as a child process. */
class Program {
  static async start(...command) {
    const program = new Program();
    program.process = spawn(process.env.TIDEGATE, command, { stdio: ["ignore", "pipe", "inherit"] });
    program.ended = once(program.process, "close");
    await new Promise((listens, fails) => {
      program.process.once("close", () => fails(new Error(`${command} did not listen`)));
      createInterface({ input: program.process.stdout }).on("line", (line) => {
        if (!line.startsWith("listening on ")) return;
        program.baseURL = line.slice("listening on ".length);
        listens();
      });
    });
    return program;
  }

  client(settings = {}) {
    return new OpenAI({ baseURL: this.baseURL, apiKey: "none", maxRetries: 0, ...settings });
  }

  async page(path) {
    return (await fetch(new URL(path, this.baseURL))).json();
  }

  /** Waits until so many requests wait and so many calls are in flight. */
  async until(waiting, inFlight) {
    await until(() => this.page("/healthz"), (health) => health.waiting === waiting && health.in_flight === inFlight);
  }

  async stop() {
    this.process.kill("SIGTERM");
    await this.ended;
  }
}

describe("the official client for Node through tidegate proxy", () => {
  let mock;
  let scratch;
  before(async () => {
    mock = await Program.start("mock", join(HERE, "pushes_back.toml"), "--listen", "127.0.0.1:0");
    scratch = await mkdtemp(join(tmpdir(), "tidegate-proxy-"));
  });
  after(async () => {
    await mock.stop();
    await rm(scratch, { recursive: true });
  });

  async function proxy(t, provider = "", rest = "") {
    const file = join(scratch, "proxy.toml");
    const head = `listen = "127.0.0.1:0"\n[[providers]]\nname = "mock"\nbase_url = "${mock.baseURL}"`;
    await writeFile(file, `${head}\n${provider}\n${rest}\n`);
    const program = await Program.start("proxy", file);
    t.after(() => program.stop());
    return program;
  }

  const refused = async () => (await mock.page("/mock/stats")).models.narrow.refused;

  it("lets two hundred calls at once of a provider that pushes back see no 429", async (t) => {
    const program = await proxy(t, "max_parallel = 100");
    const before = await refused();
    const client = program.client();
    const calls = Array.from({ length: CLIENTS }, () => client.chat.completions.create({ model: "narrow", messages }));
    for (const answer of await Promise.all(calls)) assert.match(answer.choices[0].message.content, /lamp failed/);
    assert.ok((await refused()) > before, "it never pushed back");
    await program.until(0, 0);
  });

  it("shares by weight", async (t) => {
    const known = ["people", "batch"].map((name) => `[[tenants.known]]\nname = "${name}"\nkey_env = "${name}_KEY"`);
    process.env.people_KEY = "sk-people";
    process.env.batch_KEY = "sk-batch";
    const tenants = `[tenants]\nby = "api_key"\n${known[0]}\nweight = 3\n${known[1]}`;
    const program = await proxy(t, "max_parallel = 64", tenants);
    const before = await refused();
    const done = { people: 0, batch: 0 };
    const total = () => done.people + done.batch;
    const controller = new AbortController();
    setMaxListeners(0, controller.signal);
    const ask = async (tenant) => {
      const client = program.client({ apiKey: `sk-${tenant}` });
      while (total() < 320) {
        await client.chat.completions.create({ model: "narrow", messages }, { signal: controller.signal });
        done[tenant] += 1;
        if (total() >= 320) controller.abort();
      }
    };
    const asking = Object.keys(done).flatMap((tenant) => Array.from({ length: CLIENTS / 2 }, () => ask(tenant)));
    await Promise.allSettled(asking);
    const share = done.people / total();
    assert.ok(Math.abs(share - 0.75) < 0.04, JSON.stringify(done));
    assert.ok((await refused()) > before, "it never pushed back");
    await program.until(0, 0);
  });

  it("streams piece by piece, and gives up what is aborted", async (t) => {
    const program = await proxy(t, "max_parallel = 1");
    const client = program.client();
    const whole = await client.chat.completions.create({ model: "chat", messages });
    let said = "";
    for await (const chunk of await client.chat.completions.create({ model: "chat", messages, stream: true })) {
      said += chunk.choices[0]?.delta.content ?? "";
    }
    assert.equal(said, whole.choices[0].message.content);
    const controller = new AbortController();
    const ask = () => client.chat.completions.create({ model: "silent", messages }, { signal: controller.signal });
    const calls = [ask(), ask(), ask()];
    await program.until(2, 1);
    controller.abort();
    for (const call of calls) await assert.rejects(call, OpenAI.APIUserAbortError);
    await program.until(0, 0);
  });

  it("has nothing left of a client that is killed", async (t) => {
    const program = await proxy(t, 'max_parallel = 8\nlimit = "fixed"');
    const script = `
      import OpenAI from "openai";
import { until } from "../patience.mjs";
      const client = new OpenAI({ baseURL: process.argv[1], apiKey: "none", maxRetries: 0 });
      const messages = ${JSON.stringify(messages)};
      const call = () => client.chat.completions.create({ model: "silent", messages });
      await Promise.all(Array.from({ length: ${CLIENTS} }, call));`;
    const options = { cwd: HERE, stdio: ["ignore", "ignore", "inherit"] };
    const client = spawn(process.execPath, ["--input-type=module", "-e", script, program.baseURL], options);
    await program.until(CLIENTS - 8, 8);
    client.kill("SIGKILL");
    await program.until(0, 0);
  });
});
