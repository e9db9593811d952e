// A server for the dashboard by itself: the page of `dashboard-fixture`, built around the sources of the playground.
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname } from "node:path";
import { fileURLToPath } from "node:url";
import { ARTIFACTS } from "./demo.mjs";
import { build } from "../../web-demo/app/node_modules/vite/dist/node/index.js";
import { svelte } from "../../web-demo/app/node_modules/@sveltejs/vite-plugin-svelte/src/index.js";

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'";

/** Serves the files below a folder on a free port, under the path `prefix`. @returns {Promise<{ url: string, stop: () => Promise<void> }>} */
export async function serveFolder(folder, { prefix = "/", headers = {} } = {}) {
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url ?? "/", "http://localhost");
    const name = pathname.slice(prefix.length) || "index.html";
    const isInside = pathname.startsWith(prefix) && !name.includes("..");
    const content = isInside ? await readFile(`${folder}/${name}`).catch(() => undefined) : undefined;
    response.writeHead(content ? 200 : 404, { "content-type": TYPES[extname(name)] ?? (name.endsWith(".wasm") ? "application/wasm" : "text/plain"), ...headers });
    response.end(content ?? "no such file\n");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  return {
    url: `http://127.0.0.1:${port}${prefix}`,
    stop: () => new Promise((resolve) => {
      server.closeAllConnections();
      server.close(() => resolve(undefined));
    }),
  };
}

/** Builds and serves the dashboard by itself. */
export async function startDashboardSite() {
  const outDir = `${ARTIFACTS}dashboard`;
  await build({
    root: fileURLToPath(new URL("dashboard-fixture/", import.meta.url)),
    configFile: false,
    logLevel: "warn",
    publicDir: fileURLToPath(new URL("../../web-demo/app/public/", import.meta.url)),
    plugins: [svelte()],
    build: { outDir, emptyOutDir: true, target: "es2023" },
  });
  return serveFolder(outDir, { headers: { "content-security-policy": POLICY } });
}
