// @ts-check
/// <reference lib="webworker" />
// Answers from the copy that was taken when this version was first opened. The two names below are filled in when the
// page is put together: a new version has another hash and takes a new copy.
const VERSION = "{{version}}";
/** @type {string[]} */
const FILES = JSON.parse('{{files}}');

const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));
// Another folder of this host may hold a page like this one, with copies of its own.
const FAMILY = `tidegate-playground ${worker.registration.scope} `;
const NAME = FAMILY + VERSION;

worker.addEventListener("install", (event) => {
  // All files or none; those that the page has just loaded are only asked about. An open page keeps the version it
  // began with, files that it loads later included: this one waits until no such page is left.
  event.waitUntil(caches.open(NAME).then((cache) => cache.addAll(FILES.map((file) => new Request(file, { cache: "no-cache" })))));
});

worker.addEventListener("activate", (event) => {
  const isOld = (/** @type {string} */ name) => name.startsWith(FAMILY) && name !== NAME;
  event.waitUntil(
    caches
      .keys()
      .then((names) => Promise.all(names.filter(isOld).map((name) => caches.delete(name))))
      .then(() => worker.clients.claim()),
  );
});

worker.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET" || new URL(request.url).origin !== worker.location.origin) return;
  event.respondWith(answer(request));
});

/** The copy, so that all files are of one version; what is not in it comes from the server. @param {Request} request */
async function answer(request) {
  const cache = await caches.open(NAME);
  const copy = await cache.match(request, { ignoreSearch: true });
  if (copy) return copy;
  try {
    return await fetch(request);
  } catch (error) {
    // The page has other addresses, too, such as `index.html`.
    const page = request.mode === "navigate" ? await cache.match("./") : undefined;
    if (page) return page;
    throw error;
  }
}
