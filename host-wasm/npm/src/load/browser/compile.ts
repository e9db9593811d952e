/** Fetches and compiles a wasm file of the package. Each way in which that fails has a message of its own. */

/**
 * Returns the module of the wasm file at `url`.
 *
 * @throws Error that says what kept it from loading: the policy of the page, the network, the status or the type of
 * the answer, or what the file holds
 */
export async function compileWasm(url: URL): Promise<WebAssembly.Module> {
  const answer = await fetchWasm(url);
  if (!answer.ok) {
    throw failure(`${url} answered with status ${answer.status}. Serve the folder \`dist/wasm\` of the package beside its scripts`);
  }
  const type = answer.headers.get("content-type");
  try {
    // Compiled while it comes, which browsers do for this type alone.
    if (type === "application/wasm") return await WebAssembly.compileStreaming(answer);
    const bytes = await answer.arrayBuffer();
    if (isWasm(bytes)) return await WebAssembly.compile(bytes);
  } catch (error) {
    const { message } = error as Error;
    if (!isPolicyError(message)) throw failure(`${url} does not compile: ${message}`, error);
    throw failure("the Content-Security-Policy of the page forbids wasm: add 'wasm-unsafe-eval' to its `script-src`", error);
  }
  const what = type === null ? "no wasm" : `no wasm but ${type}`;
  throw failure(`${url} is ${what}. A server that answers with a page where it has no file does that: serve \`dist/wasm\``);
}

async function fetchWasm(url: URL): Promise<Response> {
  let isForbidden = false;
  const onViolation = (): void => void (isForbidden = true);
  globalThis.addEventListener?.("securitypolicyviolation", onViolation);
  try {
    return await fetch(url);
  } catch (error) {
    // A policy is reported in a turn of its own.
    await new Promise((resolve) => setTimeout(resolve));
    if (isForbidden) throw failure(`the Content-Security-Policy of the page forbids to fetch ${url}: add it to its \`connect-src\``, error);
    const { message } = error as Error;
    throw failure(`${url} cannot be fetched: ${message}. The server is down, or it is another origin that does not allow it (CORS)`, error);
  } finally {
    globalThis.removeEventListener?.("securitypolicyviolation", onViolation);
  }
}

function failure(what: string, cause?: unknown): Error {
  return new Error(`tidegate does not load: ${what}`, { cause });
}

/** Whether a file begins as every wasm file does. */
function isWasm(bytes: ArrayBuffer): boolean {
  const [...head] = new Uint8Array(bytes.slice(0, 4));
  return String.fromCharCode(...head) === "\0asm";
}

/**
 * Whether an error of the compiler is about the policy: Chromium and Safari name the source that is missing.
 */
function isPolicyError(message: string): boolean {
  return /unsafe-eval|blocked by CSP|Content Security Policy/i.test(message);
}
