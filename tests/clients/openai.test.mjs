// The official OpenAI client for Node, against `tidegate mock` over real sockets.
//
// Run by ./run, which sets TIDEGATE to the program. Every test names what a user of the client may rely on.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import OpenAI from "openai";
import { until } from "../patience.mjs";

const MODELS = fileURLToPath(new URL("models.toml", import.meta.url));
const messages = [{ role: "user", content: "the breakwater lamp failed" }];

/** `tidegate mock` as a child process. */
class Mock {
  static async start(...flags) {
    const mock = new Mock();
    const command = ["mock", ...flags, "--listen", "127.0.0.1:0"];
    mock.process = spawn(process.env.TIDEGATE, command, { stdio: ["ignore", "pipe", "inherit"] });
    mock.written = [];
    mock.ended = once(mock.process, "close");
    await new Promise((listens, fails) => {
      mock.process.once("close", () => fails(new Error("the mock did not listen")));
      createInterface({ input: mock.process.stdout }).on("line", (line) => {
        mock.written.push(line);
        if (!line.startsWith("listening on ")) return;
        mock.baseURL = line.slice("listening on ".length);
        listens();
      });
    });
    return mock;
  }

  client(settings = {}) {
    return new OpenAI({ baseURL: this.baseURL, apiKey: "none", ...settings });
  }

  async stats(model) {
    const answer = await fetch(new URL("/mock/stats", this.baseURL));
    return (await answer.json()).models[model];
  }

  async untilInFlight(model, wanted) {
    await until(() => this.stats(model), ({ in_flight }) => in_flight === wanted);
  }

  /** Ends it as a shell would. */
  async stop() {
    this.process.kill("SIGTERM");
    const [code] = await this.ended;
    assert.equal(code, 0);
  }
}

describe("the official client for Node against tidegate mock", () => {
  let mock;
  let client;
  before(async () => {
    mock = await Mock.start(MODELS);
    client = mock.client();
  });
  after(() => mock.stop());

  const chat = (more = {}) => client.chat.completions.create({ model: "chat", messages, ...more });

  it("answers with a function of the prompt", async () => {
    const [first, second] = [await chat(), await chat({ n: 3 })];
    assert.match(first.choices[0].message.content, /lamp failed/);
    assert.equal(second.choices[0].message.content, first.choices[0].message.content);
    assert.equal(second.choices.length, 3);
    assert.equal((await chat({ max_tokens: 2 })).choices[0].finish_reason, "length");
  });

  it("streams what it answers whole, and tells the usage", async () => {
    const whole = await chat();
    let said = "";
    let usage;
    for await (const chunk of await chat({ stream: true, stream_options: { include_usage: true } })) {
      said += chunk.choices[0]?.delta.content ?? "";
      usage = chunk.usage ?? usage;
    }
    assert.equal(said, whole.choices[0].message.content);
    assert.deepEqual(usage, whole.usage);
  });

  it("answers with JSON that fits a schema, whole and streamed", async () => {
    const schema = {
      type: "object",
      properties: {
        severity: { type: "string", enum: ["low", "high"] },
        berths: { type: "array", items: { $ref: "#/$defs/berth" }, minItems: 3 },
      },
      required: ["severity", "berths"],
      additionalProperties: false,
      $defs: { berth: { type: "object", properties: { depth: { type: "number", minimum: 2 } }, required: ["depth"] } },
    };
    const response_format = { type: "json_schema", json_schema: { name: "report", strict: true, schema } };
    const report = JSON.parse((await chat({ response_format })).choices[0].message.content);
    assert.ok(["low", "high"].includes(report.severity));
    assert.ok(report.berths.length >= 3 && report.berths.every(({ depth }) => depth >= 2));
    const streamed = await client.chat.completions.stream({ model: "chat", messages, response_format }).finalContent();
    assert.deepEqual(JSON.parse(streamed), report);
  });

  it("embeds, the default encoding and floats being the same vector", async () => {
    const embed = async (more) => (await client.embeddings.create({ model: "chat", input: "a buoy", ...more })).data[0].embedding;
    const [byDefault, floats] = [await embed(), await embed({ encoding_format: "float" })];
    assert.equal(byDefault.length, 1536);
    byDefault.forEach((value, index) => assert.ok(Math.abs(value - floats[index]) < 1e-6));
    assert.equal((await embed({ dimensions: 8 })).length, 8);
  });

  it("lists its models, and answers plain completions", async () => {
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    assert.ok(ids.includes("narrow"));
    assert.ok((await client.completions.create({ model: "chat", prompt: "a lamp" })).choices[0].text);
  });

  it("is come back to when it said so, and not before", async () => {
    const call = () => client.chat.completions.create({ model: "paced", messages });
    await call();
    await call();
    // A retry before the time that Retry-After states would be refused, too.
    const { accepted, refused } = await mock.stats("paced");
    assert.deepEqual({ accepted, refused }, { accepted: 2, refused: 1 });
  });

  it("serves a crowd at once, and lets one through a narrow gate by retries", async () => {
    const crowd = (model, maxRetries) =>
      Promise.all(
        Array.from({ length: 200 }, async (_, number) => {
          const content = `berth ${number} is closed`;
          const body = { model, messages: [{ role: "user", content }] };
          const answer = await mock.client({ maxRetries }).chat.completions.create(body);
          return answer.choices[0].message.content.includes(`berth ${number}`);
        }),
      );
    assert.ok((await crowd("chat", 0)).every(Boolean));
    assert.ok((await crowd("narrow", 100)).every(Boolean));
    const stats = await mock.stats("narrow");
    assert.deepEqual([stats.answered, stats.in_flight], [200, 0]);
    assert.ok(stats.most_in_flight <= 40);
  });

  it("has a slot free at once when a client goes away", async () => {
    const stream = await client.chat.completions.create({ model: "slow", messages, stream: true });
    await mock.untilInFlight("slow", 1);
    stream.controller.abort();
    await mock.untilInFlight("slow", 0);
    const giveUp = new AbortController();
    const call = client.chat.completions.create({ model: "slow", messages }, { signal: giveUp.signal });
    const given = assert.rejects(call, OpenAI.APIUserAbortError);
    await mock.untilInFlight("slow", 1);
    giveUp.abort();
    await given;
    await mock.untilInFlight("slow", 0);
  });

  it("fails in the client's own kinds of error", async () => {
    const once = (model, settings = {}) =>
      mock.client({ maxRetries: 0, ...settings }).chat.completions.create({ model, messages });
    await assert.rejects(once("nobody"), (error) => {
      assert.ok(error instanceof OpenAI.NotFoundError);
      return error.code === "model_not_found";
    });
    await assert.rejects(once("full"), (error) => {
      assert.ok(error instanceof OpenAI.RateLimitError);
      return error.headers.get("retry-after-ms") === "1500";
    });
    await assert.rejects(once("broken"), OpenAI.InternalServerError);
    await assert.rejects(once("silent", { timeout: 300 }), OpenAI.APIConnectionTimeoutError);
    await assert.rejects(once("cut"));
    await assert.rejects(once("garbled"), SyntaxError);
    for (const model of ["cut", "garbled"]) {
      await assert.rejects(async () => {
        const stream = await client.chat.completions.create({ model, messages, stream: true });
        for await (const _ of stream);
      });
    }
  });

  it("asks for its key", async () => {
    const guarded = await Mock.start("--model", "m", "--require-key", "tide");
    const call = (apiKey) => guarded.client({ apiKey }).chat.completions.create({ model: "m", messages });
    assert.ok(await call("tide"));
    await assert.rejects(call("ebb"), OpenAI.AuthenticationError);
    await guarded.stop();
    assert.ok(guarded.written.some((line) => line.startsWith("2 requests, 1 of them")), guarded.written.join("\n"));
  });
});
