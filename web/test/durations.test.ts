import assert from "node:assert/strict";
import { test } from "node:test";
import { buckets, quantile, rowInside, snapped, sumBuckets, sumRows, wholeSpan } from "../src/durations";
import { differences } from "../src/difference";
import type { Heatmap } from "../src/report";

const MAP: Heatmap = {
  t0: 100,
  step_seconds: 0.5,
  edges_ms: [1, 10, 100],
  cells: [
    {
      class: "a",
      counts: [
        [4, 0],
        [0, 2],
        [0, 0],
        [1, 1],
      ],
    },
    {
      class: "b",
      counts: [
        [1, 0],
        [1, 0],
        [1, 0],
        [1, 0],
      ],
    },
  ],
};

test("buckets lie between edges, or around them too", () => {
  const bounds = buckets(MAP).map(({ low, high }) => [low, high]);
  assert.deepEqual(bounds, [
    [1, 10],
    [10, 100],
  ]);
  assert.ok(Math.abs((buckets(MAP)[0]?.middle ?? 0) - Math.sqrt(10)) < 1e-9);
  const open = { ...MAP, cells: [{ class: "a", counts: [[1, 0, 0, 1]] }] };
  assert.deepEqual(
    buckets(open).map(({ low, high }) => [low, high]),
    [
      [0.5, 1],
      [1, 10],
      [10, 100],
      [100, 200],
    ],
  );
});

test("counts add up over classes and time", () => {
  assert.deepEqual(
    sumRows(MAP, () => true),
    [
      [5, 0],
      [1, 2],
      [1, 0],
      [2, 1],
    ],
  );
  assert.deepEqual(sumBuckets(sumRows(MAP, (name) => name === "a")), [5, 3]);
});

test("quantiles are found within their bucket", () => {
  const bounds = buckets(MAP);
  assert.equal(quantile([0, 0], bounds, 0.5), null);
  assert.ok(Math.abs((quantile([4, 0], bounds, 0.5) ?? 0) - Math.sqrt(10)) < 1e-9);
  assert.equal(quantile([1, 3], bounds, 1), 100);
  assert.equal(quantile([1, 1], bounds, 0.5), 10);
});

test("spans lie on whole rows within the map", () => {
  assert.deepEqual(wholeSpan(MAP), { from: 100, to: 102 });
  assert.deepEqual(snapped(MAP, { from: 101.4, to: 100.6 }), { from: 100.5, to: 101.5 });
  assert.deepEqual(snapped(MAP, { from: 100.6, to: 100.61 }), { from: 100.5, to: 101 });
  assert.equal(snapped(MAP, { from: 90, to: 110 }), null);
  assert.equal(snapped(MAP, { from: 90, to: 95 }), null);
  assert.equal(snapped(MAP, { from: 103, to: 104 }), null);
  const span = { from: 100.5, to: 101.5 };
  assert.deepEqual(
    [0, 1, 2, 3].map((row) => rowInside(MAP, row, span)),
    [false, true, true, false],
  );
});

/** Sixty steps: `burst` has three times as many requests in steps 20 to 29, `slow` takes ten times as long. */
function scene(): Heatmap {
  const steps = Array.from({ length: 60 }, (_, step) => step);
  const inside = (step: number) => step >= 20 && step < 30;
  const wave = (step: number) => step % 3;
  return {
    t0: 0,
    step_seconds: 1,
    edges_ms: [1, 10, 100, 1000],
    cells: [
      { class: "burst", counts: steps.map((step) => [(inside(step) ? 60 : 20) + wave(step), 0, 0]) },
      {
        class: "slow",
        counts: steps.map((step) => (inside(step) ? [0, wave(step), 6] : [0, 6 + wave(step), 0])),
      },
      { class: "even", counts: steps.map((step) => [50 + wave(step), 0, 0]) },
    ],
  };
}

test("what is different is found, and what is not is not shown", () => {
  const span = { from: 20, to: 30 };
  const names = (kind: Parameters<typeof differences>[2]) =>
    differences(scene(), span, kind, 10).map(({ name, effect }) => [name, Math.sign(effect)]);
  assert.deepEqual(names("requests"), [["burst", 1]]);
  assert.deepEqual(names("in progress"), [
    ["slow", 1],
    ["burst", 1],
  ]);
  assert.deepEqual(names("slower"), [["slow", 1]]);
  const [burst] = differences(scene(), span, "requests", 10);
  assert.ok(burst && Math.abs(burst.inside - 60.9) < 0.5 && Math.abs(burst.outside - 21) < 0.5);
  assert.equal(differences(scene(), span, "in progress", 1).length, 1);
});

test("a span of everything or of nothing differs from nothing", () => {
  assert.deepEqual(differences(scene(), { from: 0, to: 60 }, "requests", 10), []);
  assert.deepEqual(differences(scene(), { from: 70, to: 80 }, "requests", 10), []);
});
