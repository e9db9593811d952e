// A server for the stage by itself: the page of `stage-fixture` over the files of the demo, under its security policy.
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname } from "node:path";
import { fileURLToPath } from "node:url";

const FIXTURE = new URL("stage-fixture/", import.meta.url);
const DEMO = new URL("../../web-demo/", import.meta.url);
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'";

async function fileOf(path) {
  const name = path === "/" ? "index.html" : path.slice(1);
  const places = [new URL(name, FIXTURE), new URL(`app/src/${name}`, DEMO), new URL(`app/public/${name}`, DEMO), new URL(name, DEMO)];
  for (const place of places) {
    if (!place.href.startsWith(FIXTURE.href) && !place.href.startsWith(DEMO.href)) continue;
    const content = await readFile(place).catch(() => undefined);
    if (content) return { content, type: TYPES[extname(fileURLToPath(place))] ?? "text/plain" };
  }
  return undefined;
}

/** Starts it on a free port. @returns {Promise<{ url: string, stop: () => Promise<void> }>} */
export async function startStageSite() {
  const server = createServer(async (request, response) => {
    const file = await fileOf(new URL(request.url ?? "/", "http://localhost").pathname);
    response.writeHead(file ? 200 : 404, { "content-type": file?.type ?? "text/plain", "content-security-policy": POLICY });
    response.end(file?.content ?? "no such file\n");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  return {
    url: `http://127.0.0.1:${port}/`,
    stop: () => new Promise((resolve) => {
      server.closeAllConnections();
      server.close(() => resolve(undefined));
    }),
  };
}
