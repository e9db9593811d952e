// Starts the demo's server as a person would, and a browser, and watches both.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { copyFile, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { fileURLToPath, pathToFileURL } from "node:url";
import { chromium } from "playwright-core";
import { PATIENCE_MS } from "../patience.mjs";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
/** Where screenshots and the exported page go; not under version control. */
export const ARTIFACTS = fileURLToPath(new URL("../artifacts/", import.meta.url));

/** The bindings that the page was built with. */
export const BINDINGS = fileURLToPath(new URL("../../web-demo/app/src/pkg/", import.meta.url));

/** Starts a program of the workspace: the one in the folder TIDEGATE_BIN, or whatever cargo builds. */
function startProgram(name, ...options) {
  const built = process.env.TIDEGATE_BIN;
  const [program, ...first] = built ? [`${built}/${name}`] : [process.env.CARGO ?? "cargo", "run", "--quiet", "--bin", name, "--"];
  return spawn(program, [...first, ...options], { cwd: ROOT, stdio: ["ignore", "pipe", "inherit"] });
}

function ended(child) {
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code, signal) => resolve(code ?? signal));
  });
}

/** Starts the server on a free port, or takes the one that runs already. @returns {Promise<{ url: string, stop: () => Promise<void> }>} */
export async function startServer() {
  const running = process.env.TIDEGATE_PLAYGROUND;
  if (running) return { url: running, stop: async () => {} };
  const child = startProgram("tidegate-demo", "--no-open", "--port", "0");
  const end = ended(child);
  const address = new Promise((resolve) => {
    createInterface({ input: child.stdout }).on("line", (line) => {
      const found = /^The playground is at (http:\S+)$/.exec(line);
      if (found) resolve(found[1]);
    });
  });
  // Building everything from nothing takes as long as it takes: it either ends or prints its address.
  const url = await Promise.race([address, end.then((code) => Promise.reject(new Error(`the demo ended with ${code}`)))]);
  const stop = async () => {
    child.kill("SIGINT");
    await end;
  };
  return { url, stop };
}

/** Writes the page into a folder, as for static hosting. @param {string} folder */
export async function exportSite(folder) {
  const code = await ended(startProgram("tidegate-demo", "--export", folder));
  if (code !== 0) throw new Error(`the export ended with ${code}`);
}

/** What a program of the workspace prints. @param {string} name @param {string[]} options */
export async function outputOf(name, ...options) {
  const child = startProgram(name, ...options);
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text) => (output += text));
  const code = await ended(child);
  if (code !== 0) throw new Error(`${name} ended with ${code}`);
  return output;
}

/** How many times slower than the machine the pages of the tests are. */
const THROTTLE = Number(process.env.TIDEGATE_CPU_THROTTLE || 1);

/** Makes every context of a browser wait for as long as tests do, and slows its pages down by TIDEGATE_CPU_THROTTLE. */
function unhurried(browser) {
  const newContext = browser.newContext.bind(browser);
  browser.newContext = async (options) => {
    const context = await newContext(options);
    context.setDefaultTimeout(PATIENCE_MS);
    const newPage = context.newPage.bind(context);
    context.newPage = async () => {
      const page = await newPage();
      if (THROTTLE !== 1) {
        const session = await context.newCDPSession(page);
        await session.send("Emulation.setCPUThrottlingRate", { rate: THROTTLE });
      }
      return page;
    };
    return context;
  };
  return browser;
}

/** A real browser, or a failure that says what is missing: this leg is never skipped. */
export async function startBrowser() {
  const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
  if (!existsSync(executablePath)) {
    throw new Error(`no browser at ${executablePath}: install Chromium, or name one in the environment variable CHROMIUM`);
  }
  return unhurried(await chromium.launch({ executablePath, timeout: PATIENCE_MS }));
}

/** The scheduler and the scenarios that the page was built with, loaded in this process: the page's figures are compared with
 * its own. */
export async function loadCore() {
  const module = await loadModule("tidegate_playground");
  const [{ textOf }, { SCENARIOS }] = await loadScripts("tidegate_scenario_texts", "tidegate_scenarios");
  const scenario = (name) => {
    const { suite, ...info } = SCENARIOS.find((one) => one.name === name);
    return module.completeScenario({ ...info, ...JSON.parse(textOf(name)) });
  };
  return { ...module, scenarios: () => SCENARIOS, scenario };
}

/** The module that reads and writes files. */
export const loadFiles = () => loadModule("tidegate_files");

/** The machines that share a limit. */
export const loadMachines = () => loadModule("tidegate_machines");

async function loadModule(name) {
  const [[loaded], module] = await Promise.all([loadScripts(name), readFile(`${BINDINGS}${name}_bg.wasm`)]);
  const { memory } = loaded.initSync({ module });
  return { ...loaded, memory };
}

/** Scripts of the bindings, which may import each other. */
async function loadScripts(...names) {
  const folder = await mkdtemp(`${ARTIFACTS}pkg-`);
  await writeFile(`${folder}/package.json`, '{ "type": "module" }');
  for (const name of names) await copyFile(`${BINDINGS}${name}.js`, `${folder}/${name}.js`);
  const loaded = await Promise.all(names.map((name) => import(pathToFileURL(`${folder}/${name}.js`).href)));
  await rm(folder, { recursive: true, force: true });
  return loaded;
}
