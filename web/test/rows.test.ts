import assert from "node:assert/strict";
import { test } from "node:test";
import { type Resource } from "../src/report";
import { type Sort, type Wanted, groups } from "../src/rows";
import { headline, spike, story } from "../src/verdict";
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

test("classes that cannot be told apart stand together where the first of them belongs", () => {
  assert.deepEqual(names(), [["GET /search"], ["POST /cart", "GET /cart"], ["GET /"], ["GET /none"]]);
});

test("a filter takes every word, in any case", () => {
  assert.deepEqual(names({ filter: "CART get" }), [["GET /cart"]]);
  assert.deepEqual(names({ filter: "nothing" }), []);
  assert.deepEqual(names({ accusedOnly: true }), [["GET /search"], ["POST /cart", "GET /cart"]]);
});

test("the headline names who stands out", () => {
  const [it] = REPORT.resources;
  assert.ok(it);
  const text = headline(REPORT, it);
  assert.match(
    text,
    /^db cpu is 75 % used\. 3 classes stand out: GET \/search 40 % \(strong\), POST \/cart 10 %/,
  );
});

test("until enough was seen it is not known yet", () => {
  const of = (basis: Resource["basis"]) => {
    const read = report({
      resources: [resource({ used: [1], basis })],
      classes: [
        requestClass("a", [pair({ share: 0.2 })]),
        requestClass("b", [pair({ confidence: "likely" })]),
      ],
    });
    const [it] = read.resources;
    assert.ok(it);
    return [headline(read, it), ...read.classes.map((one) => story(one, one.pairs[0] ?? null, it).join(" "))];
  };
  for (const text of of("not yet")) assert.match(text, /[Nn]ot known yet|not accused yet|may be innocent/);
  for (const basis of ["before the start", "seen", null] as const) {
    for (const text of of(basis)) assert.doesNotMatch(text, /yet|innocent/);
  }
});

test("a spike is told from what is as high elsewhere", () => {
  const [it] = report({
    classes: [
      requestClass("a", [
        pair({
          confidence: "strong",
          shift_ms: [-3000, -1000, 0, 100, 3000],
          shift_r: [0.1, 0.5, 0.7, 0.6, 0.2],
        }),
      ]),
    ],
  }).classes;
  const found = it?.pairs[0] && spike(it.pairs[0]);
  assert.deepEqual(found, { at0: 0.7, elsewhere: 0.2 });
  const [resourceRead] = REPORT.resources;
  assert.ok(it && resourceRead);
  const said = story(it, it.pairs[0] ?? null, resourceRead).join(" ");
  assert.match(said, /correlate with 0\.70 as it was, at most 0\.20/);
});
