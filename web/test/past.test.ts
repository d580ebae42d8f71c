import assert from "node:assert/strict";
import { test } from "node:test";
import { asResource, pastOf, pastRows } from "../src/past";
import { PAST_STEPS_MAX, parseReport } from "../src/report";
import { stack, times } from "../src/stack";
import { report } from "./samples";

const steps = (count: number, of: (step: number) => number | null) =>
  Array.from({ length: count }, (_, step) => of(step));

function read(parts: { class: string; used: (number | null)[] }[], used: (number | null)[]) {
  const past = { resource: "db cpu", t0: 1000, step_seconds: 10, used, parts };
  const found = parseReport({ ...report(), past: [past] });
  const [db] = found.resources;
  assert.ok(db);
  return { found, db, past: pastOf(found, db) };
}

test("rows say now, five minutes before, and the most with its time", () => {
  const rising = steps(90, (step) => step / 10);
  const peak = steps(90, (step) => (step === 20 ? 3 : step < 10 ? null : 1));
  const { past } = read(
    [
      { class: "rising", used: rising },
      { class: "peak", used: peak },
    ],
    rising,
  );
  assert.ok(past);
  assert.deepEqual(pastRows(past), [
    { name: "rising", now: 8.9, before: 5.9, most: 8.9, mostAt: 1900 },
    { name: "peak", now: 1, before: 1, most: 3, mostAt: 1210 },
  ]);
});

test("what is not known is no zero", () => {
  const { past } = read([{ class: "new", used: [null, null, 2] }], [1, null, 2]);
  assert.ok(past);
  assert.deepEqual(pastRows(past), [{ name: "new", now: 2, before: null, most: 2, mostAt: 1030 }]);
});

test("the picture is that of a resource, with steps where they end", () => {
  const { past, db } = read([{ class: "a", used: [1, 1] }], [2, 3]);
  assert.ok(past);
  const drawn = asResource(past, db);
  assert.deepEqual(times(drawn), [1010, 1020]);
  assert.deepEqual(
    stack(drawn).map((layer) => layer.top),
    [
      [1, 1],
      [2, 3],
    ],
  );
});

test("a report without a past, or with one of another resource, has none", () => {
  const [db] = report().resources;
  assert.ok(db);
  assert.equal(pastOf(report(), db), null);
  const { found } = read([], [1, 2]);
  assert.equal(pastOf(found, { ...db, name: "disk" }), null);
  assert.equal(read([], [1]).past, null);
  const long = read(
    [],
    steps(200, () => 1),
  ).past;
  assert.equal(long?.used.length, PAST_STEPS_MAX);
});
