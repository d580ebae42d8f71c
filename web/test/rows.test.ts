import assert from "node:assert/strict";
import { test } from "node:test";
import { type Sort, type Wanted, groups } from "../src/rows";
import { pair, report, requestClass, resource } from "./samples";

const WANTED: Wanted = {
  resource: "db cpu",
  sort: { key: "share", descending: true },
  filter: "",
  accusedOnly: false,
};

const REPORT = report({
  resources: [resource({ used: [3, 3] })],
  classes: [
    requestClass("GET /", [pair({ share: 0.02, pearson_r: null })]),
    requestClass("POST /cart", [
      pair({ share: 0.1, confidence: "ambiguous", ambiguous_with: ["GET /cart"] }),
    ]),
    requestClass("GET /search", [pair({ share: 0.4, confidence: "strong", pearson_r: 0.6, cost_ms: 38 })]),
    requestClass("GET /none"),
    requestClass("GET /cart", [pair({ share: 0.01, confidence: "ambiguous", pearson_r: 0.1 })]),
  ],
});

function names(wanted: Partial<Wanted> = {}): string[][] {
  return groups(REPORT, { ...WANTED, ...wanted }).map((group) => group.map(({ it }) => it.name));
}

test("rows are sorted, with what is not known last in both directions", () => {
  const by = (sort: Sort) => names({ sort, accusedOnly: false }).flat();
  assert.deepEqual(by({ key: "r", descending: true }).slice(0, 3), [
    "GET /search",
    "GET /cart",
    "POST /cart",
  ]);
  assert.deepEqual(by({ key: "r", descending: false }).slice(0, 1), ["GET /cart"]);
  assert.equal(by({ key: "share", descending: false }).at(-1), "GET /none");
  assert.equal(by({ key: "share", descending: true }).at(-1), "GET /none");
  assert.equal(by({ key: "class", descending: false })[0], "GET /");
});

test("classes that nothing separates stand together where the first of them belongs", () => {
  assert.deepEqual(names(), [["GET /search"], ["POST /cart", "GET /cart"], ["GET /"], ["GET /none"]]);
});

test("a filter takes every word, in any case", () => {
  assert.deepEqual(names({ filter: "CART get" }), [["GET /cart"]]);
  assert.deepEqual(names({ filter: "nothing" }), []);
  assert.deepEqual(names({ accusedOnly: true }), [["GET /search"], ["POST /cart", "GET /cart"]]);
});

test("by verdict the surest stand first, and what is not accused goes by its share", () => {
  const order = names({ sort: { key: "verdict", descending: true } });
  assert.deepEqual(order, [["GET /search"], ["POST /cart", "GET /cart"], ["GET /"], ["GET /none"]]);
});
