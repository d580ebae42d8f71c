import assert from "node:assert/strict";
import { test } from "node:test";
import { advice, rateNow } from "../src/advice";
import { claim } from "../src/claim";
import { pair, report, requestClass, resource } from "./samples";

function advised(used: number, share: number, per_second: number) {
  const { classes, resources } = report({
    resources: [resource({ used: [used] })],
    classes: [requestClass("a", [pair({ confidence: "strong", share })], { per_second, pattern: "GET /a" })],
  });
  const [it, db] = [classes[0], resources[0]];
  assert.ok(it?.pairs[0] && db);
  const found = advice(it, it.pairs[0], claim(it.pairs[0], db), db, per_second);
  assert.ok(found.kind === "rate");
  return [found.perSecond, Math.round(found.back * 1000) / 1000];
}

test("a rate gives back what the resource lacks of room", () => {
  // 3.6 of 4 are used, 2.8 are meant to be: 0.8 of the 2 that it takes, or 40 %.
  assert.deepEqual(advised(3.6, 0.5, 20), [12, 0.8]);
});

test("no less than a quarter is left, and no more than three", () => {
  assert.deepEqual(advised(4, 0.3, 100), [25, 0.9]);
  assert.deepEqual(advised(2.84, 0.5, 100), [75, 0.5]);
  assert.deepEqual(advised(1, 0.1, 100), [50, 0.2]);
});

test("a rate has two digits and is rounded down", () => {
  assert.equal(advised(1, 0.1, 333)[0], 160);
  assert.equal(advised(1, 0.1, 4.99)[0], 2.4);
  assert.equal(advised(1, 0.1, 0.0777)[0], 0.038);
  assert.equal(advised(1, 0.1, 200)[0], 100);
  assert.equal(advised(1, 0.1, 0.6)[0], 0.3);
});

test("a class that has just begun comes as often as it does now, and a rare one as often as over the minute", () => {
  /** A minute in rows of half a second: so many requests in each, from a second on. */
  const of = (each: number, from: number) => {
    const rows = Array.from({ length: 120 }, (_, row) => [row >= 2 * from ? each : 0, 0]);
    const found = report({
      to: 160,
      classes: [requestClass("a", [], { per_second: 0.8 })],
      heatmap: { t0: 100, step_seconds: 0.5, edges_ms: [1, 10, 100], cells: [{ class: "a", counts: rows }] },
    });
    const [it] = found.classes;
    assert.ok(it);
    return rateNow(found, it);
  };
  assert.equal(of(5, 55), 5);
  assert.equal(of(5, 0), 10);
  assert.equal(of(1, 0), 2);
  assert.equal(of(1, 51), 0.8);
  const [it] = report({ classes: [requestClass("a", [], { per_second: 3 })] }).classes;
  assert.ok(it);
  assert.equal(rateNow(report(), it), 3);
});
