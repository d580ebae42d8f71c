// A thousand nodes: a small answer, updated with little work, found and opened with the keyboard.

import assert from "node:assert/strict";
import { test } from "node:test";
import { open } from "./harness";
import * as scenes from "./scenes";

const UPDATES = 9;
const ANSWER_MAX = 100 * 1024;
/** Elements that an update may add, for events and charts: the rest is written into those that are there. */
const ADDED_MAX = 100;

interface Watched {
  updates: number[];
  copies: number[];
  added: number[];
}

/**
 * Notes how long each update took, with the styles and the layout that it caused, and beside it how long the
 * browser takes to draw a copy of what is there; and how many elements each update has added.
 */
const WATCH = `
  window.watched = { updates: [], copies: [], added: [] };
  let added = 0;
  const elements = (nodes) => [...nodes].reduce((sum, it) => sum + (it.querySelectorAll?.("*").length + 1 || 0), 0);
  const observer = new MutationObserver(note);
  function note(records) {
    for (const it of records) added += elements(it.addedNodes);
  }
  const timed = (what) => {
    const began = performance.now();
    what();
    document.body.offsetHeight;
    return performance.now() - began;
  };
  const measure = performance.measure.bind(performance);
  performance.measure = (name, options) => {
    document.body.offsetHeight;
    const took = performance.now() - options.start;
    if (name === "render overview") {
      note(observer.takeRecords());
      const { updates, copies } = window.watched;
      updates.push(took);
      window.watched.added.push(added);
      const all = document.getElementById("live");
      const copy = all.cloneNode(true);
      copies.push(timed(() => { all.style.display = "none"; document.body.append(copy); }));
      copy.remove();
      all.style.display = "";
      document.body.offsetHeight;
      added = 0;
      observer.observe(all, { childList: true, subtree: true });
    }
    return measure(name, options);
  };
`;

const median = (all: number[]): number =>
  all.toSorted((one, other) => one - other)[Math.floor(all.length / 2)] ?? Infinity;

test("a thousand nodes are a small answer, and an update is less work than a copy", async () => {
  const { page, server, close } = await open(scenes.thousand(), { before: WATCH });
  await page.waitForFunction(
    (wanted) => (window as unknown as { watched: Watched }).watched.updates.length > wanted,
    UPDATES,
    { timeout: 30_000 },
  );
  const found = await page.evaluate(() => (window as unknown as { watched: Watched }).watched);
  // The first draws all.
  const [update, copy] = [median(found.updates.slice(1)), median(found.copies.slice(1))];
  const size = server.sizes.get("/api/overview") ?? Infinity;
  const times = `first ${found.updates[0]?.toFixed(1)} ms, update ${update.toFixed(1)} ms, a copy ${copy.toFixed(1)} ms`;
  console.log(
    `${times} (medians of ${found.updates.length - 1}), added ${found.added.join(" ")}, ${size} bytes`,
  );
  assert.ok(size <= ANSWER_MAX, `${size} bytes`);
  assert.ok(Math.max(...found.added.slice(1)) <= ADDED_MAX, `elements added: ${found.added.join(", ")}`);
  assert.ok(update < copy, times);
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
