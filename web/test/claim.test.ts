import assert from "node:assert/strict";
import { test } from "node:test";
import { accusedOf, claim, rank } from "../src/claim";
import { CONFIDENCES, type Pair, type Resource } from "../src/report";
import { pair, report, requestClass, resource } from "./samples";

function read(fields: Partial<Pair>, basis: Resource["basis"] = "seen") {
  const { classes, resources } = report({
    resources: [resource({ basis })],
    classes: [requestClass("a", [pair(fields)])],
  });
  const [it, db] = [classes[0]?.pairs[0], resources[0]];
  assert.ok(it && db);
  return { it, db, found: claim(it, db) };
}

test("each word of the report has a degree, a form and a verb that agree", () => {
  const cases = CONFIDENCES.map((confidence) => {
    const { found } = read({ confidence, share: 0.2 });
    return [confidence, found.degree, found.form, found.verb, found.badge];
  });
  assert.deepEqual(cases, [
    ["confirmed", 3, "sure", "takes", "confirmed"],
    ["strong", 3, "sure", "takes", "strong"],
    ["likely", 2, "probable", "probably takes", "likely"],
    ["ambiguous", 1, "doubtful", "may take", "may be (one of several)"],
    ["from occupancy", 1, "doubtful", "may take up to", "may be (or merely slow)"],
  ]);
  assert.deepEqual(read({ confidence: null }).found.degree, 0);
  assert.equal(claim(null, null).form, "none");
});

test("what rests on too little is a degree less sure, unless an experiment confirmed it", () => {
  const of = (confidence: Pair["confidence"]) => read({ confidence }, "not yet").found;
  assert.deepEqual([of("strong").degree, of("strong").badge], [2, "strong (little seen)"]);
  assert.deepEqual([of("likely").verb, of("likely").badge], ["may take", "may be (little seen)"]);
  assert.equal(of("confirmed").degree, 3);
  assert.equal(read({ confidence: "strong" }, null).found.degree, 3);
  assert.equal(read({ confidence: "strong" }, "before the start").found.degree, 3);
});

test("durations alone and an interval that reaches zero make doubts", () => {
  assert.equal(read({ confidence: "likely", doubtful: true }).found.doubt, "durations");
  const noisy = (cost_error: number) => read({ confidence: "likely", cost_error }).found;
  assert.deepEqual([noisy(0.99).degree, noisy(1).degree, noisy(1).doubt], [2, 1, "error"]);
});

test("a doubtful verdict ranks below a surer one with a smaller share", () => {
  const { classes, resources } = report({
    classes: [
      requestClass("slow", [pair({ confidence: "from occupancy", share: 0.9 })]),
      requestClass("small", [pair({ confidence: "likely", share: 0.05 })]),
      requestClass("twin b", [pair({ confidence: "strong", share: 0.2 })]),
      requestClass("twin a", [pair({ confidence: "confirmed", share: 0.2 })]),
      requestClass("calm", [pair({ share: 0.99 })]),
      requestClass("elsewhere", [pair({ resource: "disk", confidence: "strong", share: 1 })]),
    ],
  });
  const [db] = resources;
  assert.ok(db);
  const names = accusedOf(classes, db).map(({ it }) => it.name);
  assert.deepEqual(names, ["twin a", "twin b", "small", "slow"]);
  const shares = [-1, 0, 0.5, 7].map((share) => rank(read({ confidence: "likely", share }).it, db));
  assert.ok(shares.every((value) => value >= 2 && value < 3));
});
