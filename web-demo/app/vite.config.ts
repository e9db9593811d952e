// Builds the page. The compiled scheduler lies in `src/pkg`, where `cargo run -p tidegate-demo` puts it.
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";
import { VitePWA } from "vite-plugin-pwa";

/** For hosts that send no headers: nothing is fetched from, or sent to, anywhere else. */
const POLICY =
  "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
  "worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'";

export default defineConfig({
  // The page works in any folder of a host.
  base: "./",
  build: { outDir: "../dist", target: "es2023", assetsInlineLimit: 0 },
  worker: { format: "es" },
  // The schema of scenario files lies beside the documentation.
  server: { fs: { allow: ["../.."] } },
  plugins: [
    svelte(),
    {
      // The development server adds styles by script, which the policy forbids.
      name: "content-security-policy",
      apply: "build",
      transformIndexHtml: () => [{ tag: "meta", attrs: { "http-equiv": "Content-Security-Policy", content: POLICY }, injectTo: "head-prepend" }],
    },
    VitePWA({
      // A page keeps the version it began with: a newer one waits until no such page is open.
      registerType: "prompt",
      injectRegister: false,
      workbox: {
        globPatterns: ["**/*.{html,js,css,svg,wasm}"],
        maximumFileSizeToCacheInBytes: 8 * 1024 * 1024,
        clientsClaim: true,
      },
      manifest: {
        name: "tidegate playground",
        short_name: "tidegate",
        description: "The tidegate scheduler in your browser, in virtual time.",
        display: "standalone",
        start_url: "./",
        icons: [{ src: "icon.svg", sizes: "any", type: "image/svg+xml" }],
      },
    }),
  ],
});
