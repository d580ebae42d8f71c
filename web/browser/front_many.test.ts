// A thousand nodes: a small answer, drawn within a frame, found and opened with the keyboard.

import assert from "node:assert/strict";
import { test } from "node:test";
import { open } from "./harness";
import * as scenes from "./scenes";

const UPDATES = 9;
const FRAME_MS = 16;
const ANSWER_MAX = 100 * 1024;
/** Notes how long each update took, with the styles and the layout that it caused. */
const TIMED = `
  window.took = [];
  const measure = performance.measure.bind(performance);
  performance.measure = (name, options) => {
    document.body.offsetHeight;
    if (name === "render overview") window.took.push(performance.now() - options.start);
    return measure(name, options);
  };
`;

test("a thousand nodes are a small answer and are drawn within a frame", async () => {
  const { page, server, close } = await open(scenes.thousand(), { before: TIMED });
  await page.waitForFunction(
    (wanted) => (window as unknown as { took: number[] }).took.length > wanted,
    UPDATES + 1,
    {
      timeout: 30_000,
    },
  );
  const took = await page.evaluate(() => (window as unknown as { took: number[] }).took);
  // The first draws all.
  const later = took.slice(1).sort((one, other) => one - other);
  const median = later[Math.floor(later.length / 2)] ?? Infinity;
  const size = server.sizes.get("/api/overview") ?? Infinity;
  const first = took[0]?.toFixed(1);
  console.log(`first ${first} ms, update ${median.toFixed(1)} ms (median of ${later.length}), ${size} bytes`);
  assert.ok(size <= ANSWER_MAX, `${size} bytes`);
  assert.ok(median <= FRAME_MS, `${median} ms`);
  assert.equal(await page.locator(".site[data-site=fleet] > .cells button").count(), 1000);
  await close();
});

test("nodes that are wrong have rows, a cell opens the row of its node", async () => {
  const { page, close } = await open(scenes.thousand());
  const rows = page.locator(".site[data-site=fleet] tbody tr");
  await rows.nth(4).waitFor();
  const names = await rows.evaluateAll((all) => all.map((it) => (it as HTMLElement).dataset["node"]));
  assert.deepEqual(names, ["n38", "n405", "n406", "n912", "n651"]);
  const cells = page.locator(".site[data-site=fleet] > .cells button");
  assert.match((await cells.nth(37).getAttribute("aria-label")) ?? "", /^n38: ejected/);
  assert.equal(await cells.nth(37).textContent(), "✕");
  await cells.nth(10).click();
  await page.locator("tr[data-node=n11]").waitFor();
  assert.match((await cells.nth(10).getAttribute("title")) ?? "", /^n11: up; \d+ tasks? on 16 CPUs; read/);
  assert.equal(await cells.nth(10).getAttribute("aria-pressed"), "true");
  // By keyboard: one stop, and arrows from there.
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Enter");
  await page.locator("tr[data-node=n13]").waitFor();
  await close();
});

test("rows of all nodes are shown a hundred at a time", async () => {
  const { page, close } = await open(scenes.thousand());
  await page.getByRole("button", { name: "Show 100 of the other 995 rows" }).click();
  await page.getByRole("button", { name: /of the other 895 rows/ }).waitFor();
  assert.equal(await page.locator(".site[data-site=fleet] tbody tr").count(), 105);
  await close();
});

test("the filter finds a node among a thousand, and stays in the address", async () => {
  const { page, close } = await open(scenes.thousand());
  await page.getByLabel("Filter").fill("n777");
  await page.locator("tr[data-node=n777]").waitFor();
  assert.equal(await page.locator(".site").count(), 1);
  assert.equal(await page.locator("#filter-note").textContent(), "1 node");
  assert.match(page.url(), /#find=n777$/);
  await page.getByLabel("Filter").fill("ejected");
  await page.locator("tr[data-node=n38]").waitFor();
  assert.equal(await page.locator(".site tbody tr").count(), 4);
  await page.getByLabel("Filter").fill("nothing of this name");
  await page.getByText("No site and no node fits the filter.").waitFor();
  await close();
});

test("a site is folded and unfolded by hand, and what is wrong stays", async () => {
  const { page, close } = await open(scenes.deadNode());
  const shop = page.locator(".site[data-site=shop]");
  await shop.getByRole("button", { name: "Fold shop" }).click();
  await shop.locator(".charts").waitFor({ state: "hidden" });
  assert.equal(await shop.locator("tbody tr").count(), 1);
  assert.equal(await shop.locator(":scope > .cells button").count(), 3);
  assert.match(page.url(), /#shut=shop$/);
  await page.reload();
  await shop.getByRole("button", { name: "Unfold shop" }).click();
  await shop.locator(".charts").waitFor();
  await close();
});
