// The page of `dashboard-fixture` as a test sees it.

/** The 10^4 case: as many spans as are ever shown, and one provider. */
export const CROWD = { tasks: 10_000, rows: 40_000, columns: 3, providers: 1, lanes: 10_000, spans: 8_192, cache: true };
/** The most of everything. */
export const MOST = { tasks: 10_000, rows: 40_000, columns: 60, providers: 8, lanes: 10_000, spans: 8_192 };

/** Opens the fixture with a dashboard of this size. What the page complains of is in `complaints`. */
export async function openDashboard(browser, url, size, { script, ...options } = {}) {
  const context = await browser.newContext({ locale: "en-US", viewport: { width: 1280, height: 900 }, ...options });
  if (script) await context.addInitScript(script);
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(error.stack ?? error.message));
  await page.goto(url);
  await page.waitForFunction(() => window.fixture);
  await page.evaluate((size) => window.fixture.build(size), size);
  return { page, complaints };
}
