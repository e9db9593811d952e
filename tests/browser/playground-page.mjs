// The playground as a test sees it: what a person can do, and the exact figures behind what they read.
import assert from "node:assert/strict";

export class PlaygroundPage {
  /** Everything that went wrong in the page: it must stay empty. */
  complaints = [];

  constructor(page, url) {
    this.page = page;
    this.url = url;
    this.host = new URL(url).host;
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) this.complaints.push(`console ${message.type()}: ${message.text()}`);
    });
    page.on("pageerror", (error) => this.complaints.push(`page error: ${error.message}`));
    page.on("requestfailed", (request) => this.complaints.push(`request failed: ${request.url()}`));
    page.on("request", (request) => {
      if (new URL(request.url()).host !== this.host) this.complaints.push(`request to another host: ${request.url()}`);
    });
    page.on("response", (response) => {
      if (response.status() >= 400) this.complaints.push(`answer ${response.status()}: ${response.url()}`);
    });
  }

  /** Opens the page and waits until it can be used. */
  static async open(browser, url, options = {}) {
    // A full locale: the chart library refuses the one a bare machine has.
    const context = await browser.newContext({ locale: "en-US", viewport: { width: 1280, height: 900 }, ...options });
    const playground = new PlaygroundPage(await context.newPage(), url);
    await playground.page.goto(url);
    await playground.play.and(playground.page.locator(":enabled")).waitFor();
    await playground.page.locator("article.provider").first().waitFor();
    return playground;
  }

  async close() {
    await this.page.context().close();
    assert.deepEqual(this.complaints, [], "the page ran without a complaint");
  }

  get play() {
    return this.page.getByRole("button", { name: /^(Play|Pause|Play again)$/ });
  }

  get speed() {
    return this.page.getByRole("slider", { name: "Speed" });
  }

  phase() {
    return this.page.getByRole("status").textContent();
  }

  /** Waits until the phase is this one. */
  async reaches(phase, timeout = 60_000) {
    await this.page.getByRole("status").filter({ hasText: new RegExp(`^${phase}$`) }).waitFor({ timeout });
  }

  async choose(scenario) {
    await this.page.getByRole("combobox", { name: "Scenario" }).selectOption(scenario);
  }

  /** Virtual seconds per real second, as a power of ten. */
  async setSpeed(exponent) {
    await this.speed.fill(String(exponent));
  }

  /** The exact number behind a figure. */
  async figure(id) {
    return Number(await this.page.locator(`#${id}`).getAttribute("data-value"));
  }

  /** Every figure on the page, under the names of the core's sample. */
  async sample() {
    return this.page.evaluate(() => {
      const number = (element) => Number(element.dataset.value);
      const figure = (id) => number(document.getElementById(id));
      return {
        at: figure("virtual-time"),
        queue_depth: figure("queue-depth"),
        running: figure("running"),
        rows_done: figure("rows-done"),
        rows_dropped: figure("rows-dropped"),
        rows_total: figure("rows-total"),
        providers: [...document.querySelectorAll("article.provider")].map((panel) => ({
          name: panel.dataset.provider,
          ...Object.fromEntries([...panel.querySelectorAll("dd[data-figure]")].map((element) => [element.dataset.figure, number(element)])),
        })),
      };
    });
  }

  /** Waits until a figure is at least this large. */
  async until(id, atLeast) {
    await this.page.waitForFunction(
      ([id, atLeast]) => Number(document.getElementById(id).dataset.value) >= atLeast,
      [id, atLeast],
    );
  }

  /** How many pixels of a provider's chart are painted in the colour of a custom property, within a small distance. */
  async painted(provider, property) {
    return this.page.locator(`article[data-provider="${provider}"] canvas`).evaluate((canvas, property) => {
      // A copy, so that reading it does not take the chart's own canvas off the fast path.
      const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
      copy.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(property).trim();
      copy.fillRect(0, 0, 1, 1);
      const [red, green, blue] = copy.getImageData(0, 0, 1, 1).data;
      copy.clearRect(0, 0, 1, 1);
      copy.drawImage(canvas, 0, 0);
      const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
      let count = 0;
      for (let at = 0; at < data.length; at += 4) {
        const distance = Math.abs(data[at] - red) + Math.abs(data[at + 1] - green) + Math.abs(data[at + 2] - blue);
        if (data[at + 3] > 200 && distance < 24) count += 1;
      }
      return count;
    }, property);
  }
}
