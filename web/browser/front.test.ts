// How the front page looks in each scene: nothing is complained of, nothing is too wide, what hurts comes first.

import assert from "node:assert/strict";
import { test } from "node:test";
import { axe, isTooWide, open, picture } from "./harness";
import * as scenes from "./scenes";

const SCENES = {
  calm: scenes.calm,
  "dead-node": scenes.deadNode,
  overload: scenes.overload,
  culprit: scenes.culprit,
  "thousand-nodes": scenes.thousand,
} as const;
const LOOKS = { "": {}, "-dark": { dark: true }, "-mobile": { mobile: true } } as const;
/** Pictures that the documentation has. */
const DOCUMENTED = /^(calm|dead-node|overload|culprit|thousand-nodes|overload-dark|dead-node-mobile)$/;
/** Most bytes of a picture. */
const PICTURE_MAX = 150_000;

for (const [name, make] of Object.entries(SCENES)) {
  for (const [suffix, look] of Object.entries(LOOKS)) {
    test(`${name}${suffix}: complete, accessible and as wide as the window`, async () => {
      const { page, close } = await open(make(), look);
      await page.waitForSelector("#sites .site .picture path[d^=M]", { state: "attached" });
      await page.waitForSelector("#events-list li");
      assert.ok(
        (await picture(page, `front-${name}${suffix}`, false, DOCUMENTED.test(name + suffix))) <= PICTURE_MAX,
      );
      assert.deepEqual(await axe(page), []);
      assert.equal(await isTooWide(page), false);
      await close();
    });
  }
}

test("the headline says what is wrong, and how much more is", async () => {
  const { page, close } = await open(scenes.overload());
  await page.getByText("Wrong: shop refuses 702 of 2,350 requests/s").waitFor();
  assert.equal(await page.locator("#headline").getAttribute("class"), "bad");
  assert.equal(await page.title(), "✕ Tidegate");
  await page.getByText("and 2 more").click();
  await page.getByText("Warning: requests of shop wait 0.2 s for room").waitFor();
  await close();
});

test("where nothing is wrong nothing is coloured", async () => {
  const { page, close } = await open(scenes.calm());
  await page.getByText("all is well: 3 sites").waitFor();
  assert.equal(await page.title(), "Tidegate");
  assert.equal(await page.locator("#wrong").isHidden(), true);
  assert.equal(await page.locator(".site.bad, .site.warn, tr.bad, tr.warn, dd.bad").count(), 0);
  await close();
});

test("the worst site and the worst node come first, with what was lost", async () => {
  const { page, close } = await open(scenes.deadNode());
  await page.locator("tr[data-node=shop-2]").waitFor();
  const sites = await page.locator(".site").evaluateAll((all) => all.map((it) => it.dataset["site"]));
  assert.deepEqual(sites, ["shop", "blog"]);
  const rows = page.locator(".site >> nth=0 >> tbody tr");
  assert.equal(await rows.first().getAttribute("data-node"), "shop-2");
  assert.match(await rows.first().innerText(), /✕ ejected[^]*5 requests in a row failed/);
  await page.getByText("lost in 15 min: 410 connect").waitFor();
  assert.match(
    await page.locator("tr[data-node=shop-1]").innerText(),
    /read \d+(\.\d)? [µm]s ago by its agent/,
  );
  assert.match(await page.locator("tr[data-node=shop-1]").innerText(), /neighbours 50 %/);
  await close();
});

test("an event has a tick on the charts of its site", async () => {
  const { page, close } = await open(scenes.deadNode());
  const tick = page.locator(".site[data-site=shop] .ticks i.bad").first();
  await tick.waitFor();
  assert.match((await tick.getAttribute("title")) ?? "", /^4 min ago: shop-2 is ejected/);
  assert.equal(await page.locator(".site[data-site=blog] .ticks i.bad").count(), 0);
  await close();
});

test("words are an operator's", async () => {
  const { page, close } = await open(scenes.calm());
  await page.locator("tr[data-node=shop-1]").waitFor();
  const text = await page.locator("body").innerText();
  assert.doesNotMatch(text, /\brung\b|\bRIF\b|\bage\b/);
  await close();
});
