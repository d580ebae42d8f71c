import assert from "node:assert/strict";
import { test } from "node:test";
import { axe, isTooWide, open } from "./harness";
import * as scenes from "./scenes";

for (const [name, make] of [
  ["calm", scenes.calm],
  ["one node dead", scenes.deadNode],
] as const) {
  test(`${name}: nothing is complained of`, async () => {
    const { page, close } = await open(make());
    await page.waitForSelector("#sites .site");
    assert.deepEqual(await axe(page), []);
    assert.equal(await isTooWide(page), false);
    await close();
  });
}
