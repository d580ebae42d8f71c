import assert from "node:assert/strict";
import { test } from "node:test";
import { axe, isTooWide, open, picture } from "./harness";
import * as scenes from "./scenes";

for (const [name, make] of [
  ["calm", scenes.calm],
  ["dead-node", scenes.deadNode],
  ["overload", scenes.overload],
  ["thousand", scenes.thousand],
] as const) {
  for (const look of [{}, { dark: true }, { mobile: true }]) {
    test(`${name} ${JSON.stringify(look)}: nothing is complained of`, async () => {
      const { page, close } = await open(make(), look);
      await page.waitForSelector("#sites .site .picture path[d^=M]", { state: "attached" });
      await page.waitForSelector("#events-list li");
      await picture(page, `${name}${Object.keys(look).join("")}`);
      assert.deepEqual(await axe(page), []);
      assert.equal(await isTooWide(page), false);
      await close();
    });
  }
}
