import assert from "node:assert/strict";
import { test } from "node:test";
import { CLASSES_MAX, ReportError, isEmpty, mean, pairOf, parseReport } from "../src/report";
import { pair, report, requestClass, resource } from "./samples";

const BARE = { mode: "offline", from: 1, to: 2, requests: 0 };

function refused(value: unknown, where: RegExp): void {
  assert.throws(
    () => parseReport(value),
    (error) => error instanceof ReportError && where.test(error.message),
  );
}

test("what is absent is null or empty", () => {
  const read = parseReport(BARE);
  assert.deepEqual([read.notes, read.resources, read.classes, read.heatmap], [[], [], [], null]);
  assert.ok(isEmpty(read));
  const [first] = report({ classes: [requestClass("GET /a", [pair()])] }).classes;
  assert.ok(first);
  assert.equal(first.p99_ms, null);
  assert.equal(pairOf(first, "db cpu")?.share, null);
  assert.equal(pairOf(first, "disk"), null);
});

test("what is wrong is said with its place", () => {
  refused(null, /^the report: expected an object/);
  refused({ ...BARE, mode: "dead" }, /^mode: expected one of live, offline/);
  refused({ ...BARE, to: "2" }, /^to: expected a number/);
  refused({ ...BARE, resources: {} }, /^resources: expected a list/);
  refused({ ...BARE, resources: [resource({ capacity: 0 })] }, /^resources\[0\]\.capacity: .* above zero/);
  refused({ ...BARE, classes: [{ name: 1 }] }, /^classes\[0\]\.name: expected a text/);
  const odd = { ...pair(), confidence: "sure" };
  refused(
    { ...BARE, classes: [{ ...requestClass("a"), pairs: [odd] }] },
    /pairs\[0\]\.confidence: expected one of/,
  );
  const curve = { ...pair(), shift_ms: [0, 1], shift_r: [0] };
  refused({ ...BARE, classes: [{ ...requestClass("a"), pairs: [curve] }] }, /shift_r: expected as many/);
});

test("a heat map must be one", () => {
  const map = (edges_ms: number[], counts: number[][]) => ({
    ...BARE,
    heatmap: { t0: 0, step_seconds: 1, edges_ms, cells: [{ class: "a", counts }] },
  });
  assert.ok(parseReport(map([1, 2, 4], [[1, 2]])).heatmap);
  assert.ok(parseReport(map([1, 2, 4], [[0, 1, 2, 0]])).heatmap);
  refused(map([1, 2, 4], [[1, 2, 3]]), /heatmap\.cells\[0\]\.counts/);
  refused(map([2, 1], [[1]]), /heatmap\.edges_ms: expected ascending/);
  refused(map([0, 1], [[1]]), /heatmap\.edges_ms/);
  refused(map([1, 2], [[-1]]), /expected a count/);
});

test("lists are cut at their limits, and names of members mean nothing else", () => {
  const many = Array.from({ length: CLASSES_MAX + 5 }, (_, index) => requestClass(`c${index}`));
  assert.equal(report({ classes: many }).classes.length, CLASSES_MAX);
  const hostile = JSON.parse('{"__proto__": {"mode": "live"}, "from": 1, "to": 2, "requests": 0}');
  refused(hostile, /^mode/);
});

test("a mean is of what is known", () => {
  assert.equal(mean([1, null, 3]), 2);
  assert.equal(mean([null]), null);
});
