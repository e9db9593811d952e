/** Fetches and compiles a wasm file of the package. Each kind of failure has its own message. */

/**
 * Returns the module of the wasm file at `url`.
 *
 * @throws Error that states why it did not load: the policy of the page, the network, the status or type of
 * the response, or the content of the file
 */
export async function compileWasm(url: URL): Promise<WebAssembly.Module> {
  const answer = await fetchWasm(url);
  if (!answer.ok) {
    throw failure(`${url} answered with status ${answer.status}. Serve the folder \`dist/wasm\` of the package beside its scripts`);
  }
  const type = answer.headers.get("content-type");
  try {
    // Browsers compile while the file arrives for this type only.
    if (type === "application/wasm") return await WebAssembly.compileStreaming(answer);
    const bytes = await answer.arrayBuffer();
    if (isWasm(bytes)) return await WebAssembly.compile(bytes);
  } catch (error) {
    const { message } = error as Error;
    if (!isPolicyError(message)) throw failure(`${url} does not compile: ${message}`, error);
    throw failure("the Content-Security-Policy of the page forbids wasm: add 'wasm-unsafe-eval' to its `script-src`", error);
  }
  const what = type === null ? "not wasm" : `not wasm but ${type}`;
  throw failure(`${url} is ${what}. Some servers answer with a page where a file is missing: serve \`dist/wasm\``);
}

async function fetchWasm(url: URL): Promise<Response> {
  let isForbidden = false;
  const onViolation = (): void => void (isForbidden = true);
  globalThis.addEventListener?.("securitypolicyviolation", onViolation);
  try {
    return await fetch(url);
  } catch (error) {
    // The violation event follows in a later task.
    await new Promise((resolve) => setTimeout(resolve));
    if (isForbidden) throw failure(`the Content-Security-Policy of the page forbids fetching ${url}: add it to its \`connect-src\``, error);
    const { message } = error as Error;
    throw failure(`${url} cannot be fetched: ${message}. The server is down, or it is another origin that does not allow it (CORS)`, error);
  } finally {
    globalThis.removeEventListener?.("securitypolicyviolation", onViolation);
  }
}

function failure(what: string, cause?: unknown): Error {
  return new Error(`tidegate does not load: ${what}`, { cause });
}

/** Whether a file starts with the magic number of wasm. */
function isWasm(bytes: ArrayBuffer): boolean {
  const [...head] = new Uint8Array(bytes.slice(0, 4));
  return String.fromCharCode(...head) === "\0asm";
}

/** Whether a compile error is caused by the policy. Chromium and Safari name the missing source. */
function isPolicyError(message: string): boolean {
  return /unsafe-eval|blocked by CSP|Content Security Policy/i.test(message);
}
