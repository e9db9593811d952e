import { chromium } from "playwright-core";
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium" });
const [name, hash, w, scheme, ...script] = process.argv.slice(2);
const page = await (await browser.newContext({ locale: "en-US", viewport: { width: Number(w), height: 900 }, colorScheme: scheme })).newPage();
page.on("console", (m) => console.log(m.type(), m.text()));
page.on("pageerror", (e) => console.log("ERR", e.stack));
await page.goto("http://localhost:7777/" + hash);
await page.waitForTimeout(1500);
for (const s of script) { await eval(`(async()=>{${s}})()`).catch(e=>console.log("SCRIPT", e.message.slice(0,600))); }
await page.setViewportSize({ width: Number(w), height: await page.evaluate(() => document.documentElement.scrollHeight) }); await page.waitForTimeout(400); await page.screenshot({ path: `/tmp/s5-e-${name}.png`, fullPage: true });
console.log("overflow", await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth));
await browser.close();
