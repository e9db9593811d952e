// @ts-check
// Keeps a copy of the page in the browser, so that it opens without its server.

/** @param {(text: string) => void} tell says that it has become possible */
export async function workOffline(tell) {
  if (!("serviceWorker" in navigator) || !isSecureContext) return;
  try {
    await navigator.serviceWorker.register("sw.js", { updateViaCache: "none" });
    await navigator.serviceWorker.ready;
    tell("It now works without a network, too.");
  } catch {
    // A host or a browser that does not allow it: the page works all the same while there is a network.
  }
}
