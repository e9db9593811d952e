// A provider that counts how many calls it serves at once.

import { once } from "node:events";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

/** How long a call takes, in ms. */
const LATENCY_MS = 20;

export class Provider {
  /** The calls in flight, and the most that there ever were. */
  inFlight = 0;
  most = 0;
  /** How many calls are refused because more than `capacity` would be in flight. */
  refused = 0;
  /** How many calls each caller has had answered. */
  answered = {};
  /** While it is false, no call is answered. */
  isOpen = true;

  static async start(capacity = Infinity) {
    const provider = new Provider();
    provider.capacity = capacity;
    provider.server = createServer((request, response) => void provider.serve(request, response));
    provider.server.listen(0, "127.0.0.1");
    await once(provider.server, "listening");
    return provider;
  }

  get url() {
    return `http://127.0.0.1:${this.server.address().port}`;
  }

  async serve(request, response) {
    request.resume();
    if (this.inFlight >= this.capacity) {
      this.refused += 1;
      return response.writeHead(429, { "retry-after": "0.05" }).end("slow down");
    }
    this.inFlight += 1;
    this.most = Math.max(this.most, this.inFlight);
    let isGone = false;
    response.once("close", () => (isGone = true));
    do await sleep(LATENCY_MS);
    while (!this.isOpen && !isGone);
    this.inFlight -= 1;
    const caller = request.headers["x-caller"] ?? "other";
    this.answered[caller] = (this.answered[caller] ?? 0) + 1;
    const message = { role: "assistant", content: "an answer" };
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ choices: [{ index: 0, message, finish_reason: "stop" }] }));
  }

  stop() {
    this.server.close();
    this.server.closeAllConnections();
  }
}
