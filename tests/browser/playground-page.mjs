// The playground as a test sees it: what a person can do, and the exact figures behind what they read.
import assert from "node:assert/strict";
import { painted } from "./painted.mjs";
import { deflateSync, inflateSync } from "node:zlib";

/** The part of an address that asks for this set-up, as JSON text. */
export const linkTo = (text) => `#/stage/${deflateSync(text).toString("base64url")}`;

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
      if (!this.isOffline && !request.url().startsWith("blob:")) this.complaints.push(`request failed: ${request.url()}`);
    });
    page.on("request", (request) => {
      const { host, protocol } = new URL(request.url());
      if (protocol.startsWith("http") && host !== this.host) this.complaints.push(`request to another host: ${request.url()}`);
    });
    page.on("response", (response) => {
      if (response.status() >= 400) this.complaints.push(`answer ${response.status()}: ${response.url()}`);
    });
  }

  /** Opens the page and waits until it can be used. */
  static async open(browser, url, { hash = "", ...options } = {}) {
    // A full locale: the chart library refuses the one a bare machine has.
    const context = await browser.newContext({ locale: "en-US", viewport: { width: 1280, height: 900 }, ...options });
    const playground = new PlaygroundPage(await context.newPage(), url);
    await playground.page.goto(new URL(hash, url).href);
    await playground.isUsable();
    return playground;
  }

  async isUsable() {
    await this.play.and(this.page.locator(":enabled")).waitFor();
    await this.page.locator("#phase[data-shown]").waitFor();
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

  /** Waits until the phase is this one. */
  async reaches(phase, timeout = 90_000) {
    await this.page.locator("#phase").filter({ hasText: new RegExp(`^${phase}$`) }).waitFor({ timeout });
  }

  /** Waits until nothing moves, and the last frame is drawn. */
  async stands() {
    await this.page.locator('#phase[data-shown="still"]').waitFor();
    await this.page.waitForTimeout(100);
  }

  async tab(name) {
    await this.page.getByRole("tab", { name, exact: true }).click();
  }

  /** Picks a scenario as a person does: by typing a part of its name. */
  async choose(scenario) {
    const field = this.page.getByRole("combobox", { name: "Scenario" }).first();
    await field.click();
    await field.fill(scenario);
    await this.page.locator(`[role=option][data-name="${scenario}"]`).click();
    await this.page.waitForFunction(() => document.querySelector("#phase").textContent === "Ready");
    await this.stands();
  }

  /** Virtual seconds per real second, as a power of ten. */
  async setSpeed(exponent) {
    await this.speed.fill(String(exponent));
  }

  /** Plays until this many virtual ms have passed, and pauses. */
  async playTo(ms, exponent = 1) {
    await this.setSpeed(exponent);
    await this.play.click();
    await this.until("virtual-time", ms * 1e6);
    if ((await this.phase()) === "Running") await this.play.click();
    await this.stands();
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
    await this.play.click();
    await this.page.waitForFunction((ms) => Number(document.querySelector('tr[data-figure="time"] td')?.dataset.value) > ms, ms);
    await this.play.click();
    await this.stands();
  }

  /** The exact number behind a figure. */
  async figure(id) {
    return Number(await this.page.locator(`#${id}`).getAttribute("data-value"));
  }

  /** Figures on the page, under the names of the core's sample. */
  async sample() {
    // The parts of the stage are drawn one after the other: while nothing moves, all of them have to show the same instant.
    await this.page.waitForFunction(() => {
      const isStill = document.getElementById("phase").dataset.shown === "still";
      return !isStill || [...document.querySelectorAll(".stage")].every((stage) => stage.dataset.fresh === "true");
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
        rows_done: number(document.querySelector('#stage [data-figure="rows_done"]')),
        providers: [...document.querySelectorAll("#stage [data-provider] [data-figure=limit]")].map((limit) => {
          const panel = limit.closest("[data-provider]");
          return Object.fromEntries(["limit", "in_flight", "capacity", "waiting", "refused"].map((name) => [name, number(panel.querySelector(`[data-figure=${name}]`))]));
        }),
      };
    });
  }

  /** Waits until a figure is at least this large. */
  async until(id, atLeast, timeout = 60_000) {
    await this.page.waitForFunction(([id, atLeast]) => Number(document.getElementById(id).dataset.value) >= atLeast, [id, atLeast], { timeout });
  }

  /** What the link of this instant holds. */
  async linked() {
    const before = await this.page.getByRole("tab", { selected: true }).textContent();
    await this.tab("Take away");
    await this.page.waitForFunction(() => document.querySelector("#link")?.value.includes("#/"));
    await this.page.waitForTimeout(150);
    const address = await this.page.locator("#link").inputValue();
    await this.tab(before);
    const payload = address.split("/").at(-1);
    return { address, setUp: JSON.parse(inflateSync(Buffer.from(payload, "base64url")).toString()) };
  }

  /** Downloads with the button of this id. */
  async download(id) {
    const coming = this.page.waitForEvent("download", { timeout: 120_000 });
    await this.page.locator(`#download-${id}`).click();
    return coming;
  }

  /** How many pixels of a provider's chart are painted in the colour of a custom property, within a small distance. */
  async painted(provider, property) {
    return painted(this.page.locator(`#stage [data-provider="${provider}"] canvas`).first(), property);
  }
}
