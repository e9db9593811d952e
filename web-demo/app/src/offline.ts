// Keeps a copy of the page in the browser, so that it opens without its server.

/** @param tell says that it has become possible */
export async function workOffline(tell: (text: string) => void) {
  if (!("serviceWorker" in navigator) || !isSecureContext) return;
  try {
    const registration = await navigator.serviceWorker.register("sw.js", { updateViaCache: "none" });
    await navigator.serviceWorker.ready;
    tell("It now works without a network, too.");
    tellOfUpdates(registration, () => tell("A newer version is there: it is shown once every tab with this page has been closed."));
  } catch {
    // A host or a browser that does not allow it: the page works all the same while there is a network.
  }
}

/** A new version waits until no page of the old one is left. */
function tellOfUpdates(registration: ServiceWorkerRegistration, tell: () => void) {
  const watch = () => {
    if (registration.waiting) tell();
    const { installing } = registration;
    installing?.addEventListener("statechange", () => installing.state === "installed" && tell());
  };
  watch();
  registration.addEventListener("updatefound", watch);
}
