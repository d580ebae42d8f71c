import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

/** Ways by which a text could become markup or code. */
const BANNED = [
  "innerHTML",
  "outerHTML",
  "insertAdjacentHTML",
  "document.write",
  "eval(",
  "new Function",
  "DOMParser",
];

test("texts never become markup or code", () => {
  const folder = join(process.cwd(), "src");
  const inside = (part: string) => readdirSync(join(folder, part)).map((file) => join(part, file));
  const files = [...inside(""), ...inside("front")].filter((file) => file.endsWith(".ts"));
  assert.ok(files.length > 40);
  for (const file of files) {
    const text = readFileSync(join(folder, file), "utf8");
    for (const word of BANNED) assert.ok(!text.includes(word), `${file}: ${word}`);
  }
});
