// A Redis server for a test.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { until } from "../../../../tests/patience.mjs";

/** Returns a port of this machine that no program listens on. */
async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

export class RedisServer {
  /** Starts a server with further settings, such as `--requirepass secret`. */
  static async start(...settings) {
    const server = new RedisServer();
    server.port = await freePort();
    server.settings = settings;
    server.folder = mkdtempSync(join(tmpdir(), "tidegate-redis-"));
    await server.restart();
    return server;
  }

  get url() {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** Starts the server again, without its data. */
  async restart() {
    const options = ["--port", `${this.port}`, "--bind", "127.0.0.1", "--save", "", "--dir", this.folder, ...this.settings];
    this.process = spawn("redis-server", options, { stdio: "ignore" });
    this.process.on("error", (error) => console.error(`redis-server cannot be started: ${error.message}`));
    await until(async () => {
      const socket = connect(this.port, "127.0.0.1");
      try {
        await once(socket, "connect");
        return true;
      } catch {
        return false;
      } finally {
        socket.destroy();
      }
    });
  }

  /** Sends a command by the program `redis-cli`. Returns its output. */
  send(...command) {
    return execFileSync("redis-cli", ["-p", `${this.port}`, ...command], { encoding: "utf8" });
  }

  /** Ends the server at once. */
  async kill() {
    const ended = once(this.process, "exit");
    this.process.kill("SIGKILL");
    await ended;
  }

  async stop() {
    if (this.process.exitCode === null && this.process.signalCode === null) await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
