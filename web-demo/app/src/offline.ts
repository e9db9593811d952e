// Keeps a copy of the page in the browser, so that it opens without its server.

/** @param notify says that it has become possible */
export async function workOffline(notify: (text: string) => void) {
  if (!("serviceWorker" in navigator) || !isSecureContext) return;
  try {
    const registration = await navigator.serviceWorker.register("sw.js", { updateViaCache: "none" });
    await navigator.serviceWorker.ready;
    notify("It now works without a network, too.");
    notifyOfUpdates(registration, () => notify("A newer version is there: it is shown once every tab with this page has been closed."));
  } catch {
    // A host or a browser that does not allow it: the page works all the same while there is a network.
  }
}

/** A new version waits until no page of the old one is left. */
function notifyOfUpdates(registration: ServiceWorkerRegistration, notify: () => void) {
  const watch = () => {
    if (registration.waiting) notify();
    const { installing } = registration;
    installing?.addEventListener("statechange", () => installing.state === "installed" && notify());
  };
  watch();
  registration.addEventListener("updatefound", watch);
}
