// Starts the module worker.

const worker = new Worker("./worker.js", { type: "module" });
globalThis.outcome = new Promise((resolve, reject) => {
  worker.onmessage = ({ data }) => (data.error === undefined ? resolve(data.result) : reject(new Error(data.error)));
  worker.onerror = (event) => reject(new Error(event.message));
});
