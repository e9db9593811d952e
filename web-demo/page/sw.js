// @ts-check
/// <reference lib="webworker" />
// Answers from the copy that was taken when this version was first opened. The two names below are filled in when the
// page is put together: a new version has another hash and takes a new copy.
const VERSION = "{{version}}";
/** @type {string[]} */
const FILES = JSON.parse('{{files}}');

const NAME = `tidegate-playground-${VERSION}`;
const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));

worker.addEventListener("install", (event) => {
  // All files or none; those that the page has just loaded are only asked about.
  event.waitUntil(
    caches
      .open(NAME)
      .then((cache) => cache.addAll(FILES.map((file) => new Request(file, { cache: "no-cache" }))))
      .then(() => worker.skipWaiting()),
  );
});

worker.addEventListener("activate", (event) => {
  const isOld = (/** @type {string} */ name) => name.startsWith("tidegate-playground-") && name !== NAME;
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

/** From the server while there is one, so that a new version is seen at once; else the copy. @param {Request} request */
async function answer(request) {
  const cache = await caches.open(NAME);
  try {
    const fresh = await fetch(request);
    if (fresh.ok || fresh.status === 304) return fresh;
    return (await copyOf(cache, request)) ?? fresh;
  } catch (error) {
    const copy = await copyOf(cache, request);
    if (copy) return copy;
    throw error;
  }
}

/** @param {Cache} cache @param {Request} request */
async function copyOf(cache, request) {
  return cache.match(request, { ignoreSearch: true });
}
