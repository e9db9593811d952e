// What tests count and `bench.mjs` times: the page at its largest.

/** A scenario of 4096 groups. */
export const VERY_MANY = "very-many/fairness-groups";

/** Plays until 10^4 calls are out. */
export async function crowdInFlight(playground) {
  await playground.choose("crowd");
  await playground.setSpeed(0);
  await playground.play.click();
  await playground.waits(() => Number(document.querySelector('#explore [data-figure="in_flight"]').dataset.value) >= 9_000);
}

/** Plays the scenario of very many groups, slowly, and waits until its groups have calls out. */
export async function veryManyGroups(playground) {
  await playground.choose(VERY_MANY);
  await playground.setSpeed(-1);
  await playground.play.click();
  await playground.waits(() => Number(document.getElementById("running").dataset.value) > 0);
}

/** Picks the scenario of very many groups, and plays it from start to end. */
export async function runToTheEnd(playground) {
  await playground.choose(VERY_MANY);
  await playground.setSpeed(-1);
  await playground.play.click();
  await playground.reaches("Finished");
}

/** Types parts of names into the search for groups. Returns what it said of those called "c40". */
export async function findGroups(playground, page) {
  const search = page.locator("#controls").getByRole("textbox", { name: "Groups to show" });
  const state = page.locator("#controls").getByRole("status");
  await search.focus();
  await page.keyboard.type("C40");
  const some = state.filter({ hasText: "groups called so are shown." });
  await some.waitFor();
  await playground.settles();
  const said = await some.textContent();
  await page.keyboard.type("01");
  await state.filter({ hasText: /^Groups called so: 1\.$/ }).waitFor();
  for (let letter = 0; letter < 5; letter += 1) await page.keyboard.press("Backspace");
  await state.filter({ hasText: /^48 of 4,096 groups are shown\.$/ }).waitFor();
  await page.keyboard.type("c40 1");
  await playground.settles();
  return { said };
}

/** Compares two runs of very many groups. */
export async function twoVeryManyGroups(playground, page) {
  await playground.choose(VERY_MANY);
  await playground.tab("Compare");
  await page.getByRole("button", { name: "AIMD, Tide" }).click();
  await playground.stands();
  // The pair brings a scenario of its own.
  for (const side of [0, 1]) {
    await page.locator(`fieldset[data-side="${side}"]`).getByLabel("Scenario", { exact: true }).selectOption(VERY_MANY);
    await playground.stands();
  }
}

/** Goes to the single run and back to the two. */
export async function turnTabs(playground, page) {
  for (const [view, dashboards] of [["explore", 1], ["compare", 2]]) {
    // Looking for a tab as people name it would be a long task by itself.
    await page.evaluate((view) => document.getElementById(`tab-${view}`).click(), view);
    await page.locator(`#${view} .dashboard`).nth(dashboards - 1).waitFor();
    await playground.stands();
  }
}
