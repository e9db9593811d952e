// The playground as a test sees it: what a person can do, and the exact figures behind what they read.
import assert from "node:assert/strict";
import { PATIENCE_MS, whileItMoves } from "../patience.mjs";
import { painted } from "./painted.mjs";
import { deflateSync, inflateSync } from "node:zlib";

/** The part of an address that asks for this set-up, as JSON text. */
export const linkTo = (text) => `#/explore/${deflateSync(text).toString("base64url")}`;

export class PlaygroundPage {
  /** Everything that went wrong in the page: it must stay empty. */
  complaints = [];
  /** Whether the server has been stopped on purpose. */
  isOffline = false;

  constructor(page, url) {
    this.page = page;
    this.url = url;
    this.host = new URL(url).host;
    page.on("console", (message) => {
      if (message.text().includes("blocked by Playwright")) return;
      if (["error", "warning"].includes(message.type()) && !this.isOffline) this.complaints.push(`console ${message.type()}: ${message.text()}`);
    });
    page.on("pageerror", (error) => this.complaints.push(`page error: ${error.message}`));
    page.on("requestfailed", (request) => {
      // What is on its way when a page is left or loaded again is given up.
      const isGivenUp = request.failure()?.errorText === "net::ERR_ABORTED";
      if (!this.isOffline && !isGivenUp && !request.url().startsWith("blob:")) this.complaints.push(`request failed: ${request.url()}`);
    });
    page.on("request", (request) => {
      const { host, protocol } = new URL(request.url());
      if (protocol.startsWith("http") && host !== this.host) this.complaints.push(`request to another host: ${request.url()}`);
    });
    page.on("response", (response) => {
      if (response.status() >= 400) this.complaints.push(`answer ${response.status()}: ${response.url()}`);
    });
  }

  /** Opens the page and waits until it can be used. `script` runs in it before its own. */
  static async open(browser, url, { hash = "#/explore", script, ...options } = {}) {
    // A full locale: the chart library refuses the one a bare machine has.
    const context = await browser.newContext({ locale: "en-US", viewport: { width: 1280, height: 900 }, ...options });
    if (script) await context.addInitScript(script);
    const playground = new PlaygroundPage(await context.newPage(), url);
    await playground.page.goto(new URL(hash, url).href);
    await playground.isUsable();
    return playground;
  }

  async isUsable() {
    // The list of lessons hides the controls of the run.
    await this.play.and(this.page.locator(":enabled")).waitFor({ state: "attached" });
    await this.page.locator("#phase[data-shown]").waitFor({ state: "attached" });
  }

  async close() {
    await this.page.context().close();
    assert.deepEqual(this.complaints, [], "the page ran without a complaint");
  }

  get play() {
    return this.page.locator("#play");
  }

  get speed() {
    return this.page.getByRole("slider", { name: "Speed" });
  }

  get seek() {
    return this.page.getByRole("slider", { name: "Time" });
  }

  phase() {
    return this.page.locator("#phase").textContent();
  }

  /** What moves while a run goes on. */
  #movement() {
    return this.page.evaluate(() => [...document.querySelectorAll("#virtual-time, #steps, #compare td, .seek, #machines .clock")].map(({ dataset, style }) => `${dataset.value}${style.cssText}`).join());
  }

  /** Waits in the page for what a run leads to, for as long as it moves. */
  async waits(holds, argument) {
    await whileItMoves(() => this.page.waitForFunction(holds, argument), () => this.#movement());
  }

  /** Waits until the phase is this one. */
  async reaches(phase) {
    await this.waits((phase) => [phase, "Stopped"].includes(document.querySelector("#phase").textContent), phase);
    const why = await this.page.locator("#failure").textContent();
    assert.ok(phase === "Stopped" || (await this.phase()) !== "Stopped", `it is to become ${phase}: ${why}`);
  }

  /** Waits until nothing is under way, nothing moves, and the last picture is drawn. */
  async stands() {
    await this.page.locator('#phase[data-shown="still"]:not([data-pending])').waitFor();
    await this.settles();
  }

  /** Waits until the worker has done what it was told so far, and the page has drawn what came of it. */
  async settles() {
    // What the worker was told may make the page tell it more.
    for (let round = 0; round < 3; round += 1) {
      await Promise.all(this.page.workers().map((worker) => worker.evaluate(() => new Promise((resolve) => setTimeout(resolve)))));
      await this.framesPass(2);
    }
    await this.page.waitForFunction(() => [...document.querySelectorAll(".dashboard")].every((dashboard) => dashboard.dataset.fresh === "true"));
  }

  /** Waits for so many frames of the display. */
  framesPass(frames) {
    return this.page.evaluate(async (frames) => {
      for (let frame = 0; frame < frames; frame += 1) await new Promise(requestAnimationFrame);
    }, frames);
  }

  async tab(name) {
    await this.page.getByRole("tab", { name, exact: true }).click();
  }

  /** Picks a scenario as a person does: by typing a part of its name. Waits until it is there, unless its files are held up. */
  async choose(scenario, { isHeldUp = false } = {}) {
    const field = this.page.getByRole("combobox", { name: "Scenario" }).first();
    await field.click();
    await field.fill(scenario);
    await this.page.locator(`[role=option][data-name="${scenario}"]`).click();
    if (isHeldUp) return;
    await this.stands();
    assert.equal(await this.phase(), "Ready");
  }

  /** Gives the worker a clock that only its own timers move on, each by a share of the span that it was set for. Then it does not
   * depend on the machine how far a run gets between two turns. */
  async ownClock(share = 1) {
    const [worker] = this.page.workers();
    await worker.evaluate((share) => {
      let now = performance.now();
      const set = globalThis.setTimeout;
      performance.now = () => now;
      globalThis.setTimeout = (happens, span) =>
        set(() => {
          now += share * (span ?? 0);
          happens();
        }, span);
    }, share);
  }

  /** Virtual seconds per real second, as a power of ten. */
  async setSpeed(exponent) {
    // A narrow screen hides the speed until it is wanted.
    const more = this.page.getByRole("button", { name: "Speed, seed" });
    const isNarrow = await more.isVisible();
    if (isNarrow) await more.click();
    await this.speed.fill(String(exponent));
    if (isNarrow) await more.click();
  }

  /** Plays until this many virtual ms have passed, and pauses. */
  async playTo(ms, exponent = 1) {
    await this.setSpeed(exponent);
    await this.#playUntil("#virtual-time", ms * 1e6);
    await this.page.locator('#phase[data-shown="still"]').waitFor();
    await this.settles();
  }

  /** Plays until a figure is at least this large. The page itself pauses then: until a word from outside is there, the run may have come
   * to its end on a busy machine. */
  async #playUntil(selector, atLeast) {
    await this.play.click();
    await this.waits(
      ([selector, atLeast]) => {
        const isReached = Number(document.querySelector(selector)?.dataset.value) >= atLeast;
        if (isReached && document.querySelector("#phase").textContent === "Running") document.querySelector("#play").click();
        return isReached;
      },
      [selector, atLeast],
    );
  }

  /** Begins a comparison of one of the pairs worth a look, and plays it until this many virtual ms have passed. */
  async compare(pair, ms) {
    await this.tab("Compare");
    await this.page.getByRole("button", { name: pair }).click();
    await this.stands();
    await this.playBothTo(ms);
  }

  /** Plays the comparison until this many virtual ms have passed, and pauses. */
  async playBothTo(ms) {
    await this.setSpeed(1);
    await this.#playUntil('tr[data-figure="time"] td', ms);
    await this.stands();
  }

  /** The exact number behind a figure. */
  async figure(id) {
    return Number(await this.page.locator(`#${id}`).getAttribute("data-value"));
  }

  /** Figures on the page, under the names of the core's sample. */
  async sample() {
    // The panels of the dashboard are drawn one after the other: while nothing moves, all of them have to show the same instant.
    await this.page.waitForFunction(() => {
      const isStill = document.getElementById("phase").dataset.shown === "still";
      return !isStill || [...document.querySelectorAll(".dashboard")].every((dashboard) => dashboard.dataset.fresh === "true");
    });
    return this.page.evaluate(() => {
      const number = (element) => Number(element?.dataset.value);
      const figure = (id) => number(document.getElementById(id));
      return {
        at: figure("virtual-time"),
        steps: figure("steps"),
        queue_depth: figure("queue-depth"),
        running: figure("running"),
        rows_dropped: figure("rows-dropped"),
        refused: figure("refused"),
        rows_done: number(document.querySelector('#explore [data-figure="rows_done"]')),
        providers: [...document.querySelectorAll("#explore [data-provider] [data-figure=limit]")].map((limit) => {
          const panel = limit.closest("[data-provider]");
          return Object.fromEntries(["limit", "in_flight", "capacity", "waiting", "refused"].map((name) => [name, number(panel.querySelector(`[data-figure=${name}]`))]));
        }),
      };
    });
  }

  /** Waits until a figure is at least this large. */
  async until(id, atLeast) {
    await this.waits(([id, atLeast]) => Number(document.getElementById(id).dataset.value) >= atLeast, [id, atLeast]);
  }

  /** Opens the scenario as text, and waits until it is there. */
  async openText() {
    await this.tab("Scenario");
    await this.page.locator("#toml").filter({ hasText: "rows =" }).waitFor();
  }

  /** Pastes a text in place of that of the scenario. */
  async rewrite(text) {
    await this.page.locator("#toml").focus();
    await this.page.keyboard.press("ControlOrMeta+a");
    await this.page.locator("#toml").evaluate((content, text) => {
      const clipboardData = new DataTransfer();
      clipboardData.setData("text/plain", text);
      content.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
    }, text);
  }

  /** What the link of this instant holds. */
  async linked() {
    const before = await this.page.getByRole("tab", { selected: true }).textContent();
    await this.tab("Share and export");
    await this.settles();
    await this.page.locator('#link[data-fresh="true"]').waitFor();
    const address = await this.page.locator("#link").inputValue();
    await this.tab(before);
    const payload = address.split("/").at(-1);
    return { address, setUp: JSON.parse(inflateSync(Buffer.from(payload, "base64url")).toString()) };
  }

  /** Downloads with the button of this id. */
  async download(id) {
    const coming = this.page.waitForEvent("download", { timeout: PATIENCE_MS });
    await this.page.locator(`#download-${id}`).click();
    return coming;
  }

  /** How many pixels of a provider's chart are painted in the colour of a custom property, within a small distance. */
  async painted(provider, property) {
    return painted(this.page.locator(`#explore [data-provider="${provider}"] canvas`).first(), property);
  }
}
