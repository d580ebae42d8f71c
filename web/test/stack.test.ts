import assert from "node:assert/strict";
import { test } from "node:test";
import { Slots } from "../src/slots";
import { LAYERS_MAX, coarse, stack, times } from "../src/stack";
import { report, resource } from "./samples";

function layers(used: (number | null)[], parts: { class: string; used: (number | null)[] }[]) {
  const [read] = report({ resources: [resource({ used, parts })] }).resources;
  assert.ok(read);
  return { read, found: stack(read) };
}

test("the largest class is at the bottom, the rest on top, and together they are the use", () => {
  const { read, found } = layers(
    [2, 4],
    [
      { class: "small", used: [0.5, 0.5] },
      { class: "large", used: [1, 2] },
    ],
  );
  assert.deepEqual(
    found.map((it) => it.name),
    ["large", "small", "everything else"],
  );
  assert.deepEqual(found.at(-1)?.top, [2, 4]);
  assert.deepEqual(found[1]?.top, [1.5, 2.5]);
  assert.equal(found[0]?.share, 1.5 / 4);
  assert.deepEqual(times(read), [100, 101]);
});

test("estimates beyond the use are shown in proportion, gaps stay gaps", () => {
  const { found } = layers(
    [1, null, 0],
    [
      { class: "a", used: [3, 1, 1] },
      { class: "b", used: [1, 1, null] },
    ],
  );
  assert.deepEqual(found[0]?.used, [0.75, null, 0]);
  assert.deepEqual(found[1]?.used, [0.25, null, 0]);
  assert.deepEqual(found.at(-1)?.top, [1, null, 0]);
});

test("many parts are put together", () => {
  const parts = Array.from({ length: 10 }, (_, index) => ({ class: `c${index}`, used: [10 - index] }));
  const { found } = layers([100], parts);
  assert.equal(found.length, LAYERS_MAX + 2);
  assert.deepEqual(found[LAYERS_MAX]?.used, [4 + 3 + 2 + 1]);
  assert.equal(found[LAYERS_MAX]?.kind, "others");
});

test("a long series is drawn in means", () => {
  const { read } = layers([1, 3, null, 5, 7], [{ class: "a", used: [1, 1, 2, null, null] }]);
  assert.equal(coarse(read, 5), read);
  const few = coarse(read, 3);
  assert.deepEqual(few.used, [2, 5, 7]);
  assert.deepEqual(few.parts[0]?.used, [1, 2, null]);
  assert.deepEqual(times(few), [100.5, 102.5, 104.5]);
});

test("a class keeps its colour when its rank changes", () => {
  const slots = new Slots();
  slots.assign(["a", "b"]);
  slots.assign(["b", "c", "a"]);
  assert.deepEqual([slots.slot("a"), slots.slot("b"), slots.slot("c")], [0, 1, 2]);
  slots.assign(["c", "d"]);
  assert.deepEqual([slots.slot("a"), slots.slot("c"), slots.slot("d")], [null, 2, 0]);
});
