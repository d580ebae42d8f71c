import assert from "node:assert/strict";
import { test } from "node:test";
import type { Pair, RequestClass, Resource } from "../src/report";
import { hintText } from "../src/scroll_hint";
import { costShort, costWords, evidence, shiftWords, spike, story } from "../src/verdict";
import { pair, report, requestClass, resource } from "./samples";

function read(fields: Partial<Pair>, its: Partial<Resource> = {}, more: Partial<RequestClass> = {}) {
  const { classes, resources } = report({
    resources: [resource({ used: [2], basis: "seen", ...its })],
    classes: [requestClass("a", [pair(fields)], more)],
  });
  const [it, db] = [classes[0], resources[0]];
  const found = it?.pairs[0];
  assert.ok(it && found && db);
  return { it, pair: found, db, words: costWords(it, found, db), said: story(it, found, db).join(" ") };
}

const RANGE = { cost_ms: 3, cost_low_ms: 2, cost_high_ms: 9.4 };

test("a cost that something hides is a range, and the words say what hides it", () => {
  const full = read({ ...RANGE, cost_bounded: true }, { saturated_share: 0.5 });
  assert.equal(costShort(full.pair), "2 to 9.4 ms");
  assert.equal(
    full.words,
    "A request costs at least 2 ms; the CPU is full, so more may hide (9.4 ms at most).",
  );
  const throttle = { class: "a", limits: "rate 8", by: "operator" } as RequestClass["throttle"];
  const held = read({ ...RANGE, cost_bounded: true }, { saturated_share: 0 }, { throttle });
  assert.match(held.words ?? "", /it is throttled, so its requests come evenly/);
  const always = read({ ...RANGE, cost_bounded: true }, { saturated_share: 0 });
  assert.match(always.words ?? "", /its requests run all the time, so more may hide/);
});

test("a cost by durations alone is an upper bound, and a known one is about right", () => {
  const most = read(
    { ...RANGE, doubtful: true, confidence: "from occupancy" },
    { name: "db disk", unit: "busy" },
  );
  assert.equal(costShort(most.pair), "≤ 9.4 ms");
  assert.equal(most.words, "A request costs at most 9.4 ms; db disk is full, so how much less is hidden.");
  const known = read(RANGE);
  assert.equal(costShort(known.pair), "3 ms");
  assert.equal(known.words, "A request costs about 3 ms, 2 to 9.4 ms.");
  assert.equal(read({}).words, null);
  assert.equal(costShort(read({}).pair), "–");
});

test("a story needs no statistics, and these are in the evidence", () => {
  const curve = { shift_ms: [-3000, -1000, 0, 100, 3000], shift_r: [0.1, 0.5, 0.7, 0.6, 0.2] };
  const it = read({ ...RANGE, ...curve, confidence: "strong", share: 0.4, t: 9.2 });
  assert.equal(
    it.said,
    "It takes 1.6 of db’s 4 CPUs. A request costs about 3 ms, 2 to 9.4 ms. " +
      "The verdict is “strong”: the data leave hardly any doubt.",
  );
  assert.deepEqual(spike(it.pair), { at0: 0.7, elsewhere: 0.2 });
  assert.match(shiftWords(it.pair) ?? "", /correlate with 0\.70 as it was, at most 0\.20/);
  const numbers = new Map(evidence(it.pair).map(([term, value]) => [term, value]));
  assert.deepEqual([numbers.get("t"), numbers.get("cost, 95 % interval")], ["9.2", "2 to 9.4 ms"]);
});

test("a class that does not stand out says from what cost on it would", () => {
  const { said } = read({ share: 0.02, least_cost_ms: 12 });
  assert.equal(
    said,
    "It does not stand out; it is estimated to take 0.08 of db’s 4 CPUs. It would be named from 12 ms per request on.",
  );
});

test("until enough was seen it is not known yet", () => {
  const of = (basis: Resource["basis"], confidence: Pair["confidence"]) =>
    read({ confidence }, { basis }).said;
  assert.match(of("not yet", null), /so far, but too little was seen/);
  assert.match(of("not yet", "likely"), /“likely”, but little was seen so far: it may be innocent/);
  for (const basis of ["before the start", "seen", null] as const) {
    for (const confidence of ["likely", null] as const) {
      assert.doesNotMatch(of(basis, confidence), /so far|innocent/);
    }
  }
});

test("a box that scrolls says where", () => {
  assert.equal(hintText({ wide: false, long: false }), "");
  assert.match(hintText({ wide: true, long: false }), /columns to the right\.$/);
  assert.match(hintText({ wide: false, long: true }), /more rows below/);
  assert.match(hintText({ wide: true, long: true }), /columns .* rows/);
});
