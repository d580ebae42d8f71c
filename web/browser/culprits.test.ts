// The page of culprits in a browser: what it says at first sight, how it is reached with keys, and that it keeps its policy,
// the rules of accessibility and its window in every scene. The pictures of the guide are made here.

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import type { Page } from "playwright-core";
import { CulpritsScene } from "./culprits_scene";
import { DOUBTFUL, FOUND, NONE, OVERLOAD, type Shop, TOGETHER } from "./shops";
import { type Look, type Opened, axe, isTooWide, open, picture, program } from "./harness";

const options = { skip: program() === null ? "chromium is not installed" : false };

interface Seen extends Opened {
  scene: CulpritsScene;
}

/** The page on a scene, with its first report shown, until the test is over. */
async function look(shop: Shop, how: Look, test: (seen: Seen) => Promise<void>): Promise<void> {
  const scene = new CulpritsScene(shop);
  const opened = await open(scene, { path: "/culprits", ...how });
  try {
    await opened.page.waitForSelector("#headline:not(:empty)");
    await opened.page.waitForSelector("#classes tbody tr");
    await test({ scene, ...opened });
  } catch (error) {
    // What failed first is what is said.
    await opened.close().catch(() => null);
    throw error;
  }
  await opened.close();
}

/** What holds in every scene. */
async function holds(page: Page): Promise<void> {
  assert.deepEqual(await axe(page), []);
  assert.equal(await isTooWide(page), false, "the page scrolls sideways");
  assert.equal(await page.locator("#evidence-box").evaluate((it: HTMLDetailsElement) => it.open), false);
}

/** A picture to look at, which the guide does not show. */
async function sketch(page: Page, name: string): Promise<void> {
  await page.screenshot({ path: join("out/pictures", `${name}.png`), animations: "disabled" });
}

const headline = (page: Page) => page.locator("#headline").innerText();

test(
  "a culprit: one sentence, with the button that throttles it, before all statistics",
  options,
  async () => {
    await look(FOUND, {}, async ({ page }) => {
      assert.match(
        await headline(page),
        /^GET \/search\?q takes 2\.\d+ of db1’s 4 CPUs, \d\d % of what is used there, and slows all others; throttling it from 2[\d.]+\/s to \d+\/s would give back [\d.]+ CPUs\.$/,
      );
      assert.equal(await page.locator("#badge").innerText(), "strong");
      assert.match(await page.locator("#act").innerText(), /^Throttle it to \d+\/s for 10 min…$/);
      assert.match(await page.locator("#also").innerText(), /likely\s*GET \/report\/\{n\} probably takes/);
      const first = await page.evaluate(() => {
        const seen = [...document.querySelectorAll("main *")].filter((it) => {
          const box = it.getBoundingClientRect();
          return (
            it.childElementCount === 0 &&
            box.height > 0 &&
            box.top < window.innerHeight &&
            it.checkVisibility()
          );
        });
        return seen.map((it) => it.textContent).join(" ");
      });
      assert.doesNotMatch(first, /Pearson|correlat|lift|±|p adjusted/);
      await holds(page);
      await picture(page, "culprits-found");
    });
  },
);

test(
  "from the sentence to a throttle with keys alone, and back to a site that is fast",
  options,
  async () => {
    await look(FOUND, {}, async ({ page, scene, server }) => {
      await page.locator("#act").focus();
      await page.keyboard.press("Enter");
      await page.waitForSelector("#confirm[open]");
      assert.match(await page.locator("#confirm-said").innerText(), /2[\d.]+ are completed per second now/);
      assert.deepEqual(await axe(page), []);
      await picture(page, "culprits-confirm");
      await page.keyboard.press("Escape");
      assert.equal(server.posts().length, 0);
      assert.equal(await page.evaluate(() => document.activeElement?.id), "act");
      await page.keyboard.press("Enter");
      assert.equal(await page.evaluate(() => document.activeElement?.id), "send");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() =>
        document.querySelector("#act-answer")?.textContent?.startsWith("Done"),
      );
      const [sent] = server.posts();
      assert.equal(sent?.path, "/api/throttle");
      const body = sent.body as { class: string; limits: { rate: number }; for_seconds: number };
      assert.deepEqual(
        [body.class, body.for_seconds, Object.keys(body.limits)],
        ["GET /search?q", 600, ["rate"]],
      );
      scene.time = 45;
      await page.waitForFunction(
        () => document.querySelector("#effects td:nth-of-type(2)")?.textContent !== "–",
      );
      await page.waitForFunction(() => document.querySelector("#also")?.textContent?.includes("throttled"));
      assert.match(await headline(page), /it is throttled already \(rate \d+\)\.$/);
      await holds(page);
      await picture(page, "culprits-throttled");
      // Releasing it is one button away.
      await page.locator("#also button", { hasText: "Release" }).focus();
      await page.keyboard.press("Enter");
      await page.waitForSelector("#confirm[open]");
      await page.keyboard.press("Enter");
      await page.waitForFunction(
        () => document.querySelector("#act-answer")?.textContent === "Done: released.",
      );
      assert.equal(server.posts()[1]?.path, "/api/release");
    });
  },
);

test("what the front-end refuses is said where it was asked", options, async () => {
  await look(FOUND, {}, async ({ page, scene }) => {
    scene.refusal = "the front-end is stopping";
    await page.locator("#act").click();
    await page.locator("#send").click();
    await page.waitForFunction(
      () => document.querySelector("#act-answer")?.textContent === "Not done: the front-end is stopping",
    );
  });
});

test("a doubtful verdict looks doubtful, and a hidden cost is a range", options, async () => {
  await look(DOUBTFUL, {}, async ({ page }) => {
    assert.match(
      await headline(page),
      /^GET \/export\/\*\.csv may take up to 1\.68 of db1’s 4 CPUs, .*, or is merely slow/,
    );
    assert.equal(await page.locator("#badge").innerText(), "may be (or merely slow)");
    for (const dashed of ["#badge .verdict", "#classes tbody tr:first-child .verdict", "#answer"]) {
      const style = await page.locator(dashed).evaluate((it) => getComputedStyle(it).borderTopStyle);
      assert.equal(style, "dashed", dashed);
    }
    assert.match(await page.locator("#act").innerText(), /for 1 min…$/);
    assert.equal(await page.locator("#classes tbody tr:nth-child(1) .cost").innerText(), "≤ 760 ms");
    assert.equal(await page.locator("#classes tbody tr:nth-child(2) .cost").innerText(), "31 to 120 ms");
    assert.match(
      await page.locator("#story").innerText(),
      /at most 760 ms; the CPU is full, so how much less is hidden/,
    );
    await holds(page);
    await picture(page, "culprits-doubtful");
    await page.locator("#classes tbody tr:nth-child(2)").click();
    assert.match(
      await page.locator("#story").innerText(),
      /at least 31 ms; the CPU is full, so more may hide/,
    );
  });
});

test("two that come together are for an experiment to decide", options, async () => {
  await look(TOGETHER, {}, async ({ page, server }) => {
    assert.match(
      await headline(page),
      /^POST \/cart or GET \/cart\/summary, or both, may take 0\.96|^GET \/cart\/summary or POST \/cart, or both, may take 0\.96/,
    );
    assert.equal(await page.locator("#answer").getAttribute("class"), "answer doubtful");
    await page.locator("#act").click();
    await page.locator("#send").click();
    await page.waitForFunction(() => document.querySelector("#act-answer")?.textContent?.startsWith("Done"));
    assert.equal(server.posts()[0]?.path, "/api/culprits/experiment");
    await holds(page);
    await sketch(page, "culprits-together");
  });
});

test("without a culprit the page says so, and how sure it is", options, async () => {
  await look(NONE, {}, async ({ page }) => {
    assert.match(
      await headline(page),
      /^No class stands out at .* and that is fairly sure: simulated, 95 of 100/,
    );
    assert.equal(await page.locator("#act").isVisible(), false);
    await holds(page);
    await picture(page, "culprits-none");
  });
});

test("a full resource without a culprit is no all-clear", options, async () => {
  await look(OVERLOAD, {}, async ({ page }) => {
    assert.match(
      await headline(page),
      /^No class stands out at db1 cpu, but that is not sure: it is full 88 %/,
    );
    await holds(page);
    await sketch(page, "culprits-overload");
  });
});

test("the evidence unfolds with a key, and only then has pictures", options, async () => {
  await look(FOUND, {}, async ({ page }) => {
    assert.equal(await page.locator("#shift-chart canvas").count(), 0);
    await page.locator("#why").focus();
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement?.tagName), "SUMMARY");
    await page.waitForSelector("#shift-chart canvas");
    assert.match(await page.locator("#evidence").innerText(), /cost, 95 % interval[\s\S]*Pearson r/);
    assert.deepEqual(await axe(page), []);
    await sketch(page, "culprits-evidence");
    await page.locator("#statistics").check();
    assert.equal(await page.locator("#classes th.statistic:visible").count(), 3);
  });
});

test("the last quarter of an hour is a picture and a table", options, async () => {
  await look(FOUND, {}, async ({ page }) => {
    const says = await page.locator("#past-chart").getAttribute("aria-label");
    assert.match(says ?? "", /^db1 cpu over the last 15 min; GET \/search\?q now 2\.\d+, at most/);
    const row = page.locator("#past-table tbody tr").first();
    assert.match(await row.innerText(), /GET \/search\?q[\s\S]*2\.\d+[\s\S]*2\.\d+[\s\S]*03:/);
    await row.locator("button").click();
    assert.equal(await page.locator("#detail-name").innerText(), "GET /search?q");
  });
});

for (const [name, how] of [
  ["dark", { dark: true }],
  ["mobile", { mobile: true }],
  ["mobile-dark", { mobile: true, dark: true }],
] as const) {
  test(`${name}: readable, within its window, by the rules`, options, async () => {
    for (const [scene, shop] of [
      ["found", FOUND],
      ["doubtful", DOUBTFUL],
      ["none", NONE],
    ] as const) {
      await look(shop, how, async ({ page }) => {
        await holds(page);
        if (scene === "found" && name === "mobile") await picture(page, `culprits-${name}`);
        else await sketch(page, `culprits-${scene}-${name}`);
      });
    }
  });
}

test("a table that is wider than its window says so, and keys scroll it", options, async () => {
  await look(FOUND, { mobile: true }, async ({ page }) => {
    assert.match(await page.locator("#classes-hint").innerText(), /more columns to the right/);
    const box = page.getByRole("region", { name: "Table of classes, scrolls" });
    await box.focus();
    await page.keyboard.press("ArrowRight");
    await page.waitForFunction(() => (document.querySelector("#classes-scroll")?.scrollLeft ?? 0) > 0);
    await sketch(page, "culprits-table-mobile");
  });
});
