// Keeps one processor busy until the process that started it disconnects or ends.

const SLICE_MS = 20;

function burn() {
  const end = performance.now() + SLICE_MS;
  while (performance.now() < end);
  // Lets the event loop see the disconnection.
  setImmediate(burn);
}

process.on("disconnect", () => process.exit());
burn();
