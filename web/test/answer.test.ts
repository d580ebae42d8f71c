import assert from "node:assert/strict";
import { test } from "node:test";
import { amountOf, answer, plain } from "../src/answer";
import type { Pair, RequestClass, Resource } from "../src/report";
import { press, useOfVerdicts } from "../src/use";
import { pair, report, requestClass, resource } from "./samples";

const SEARCH = { per_second: 24, pattern: "GET /search" };

/** A database of four cores of which so many are used, and what is said of it. */
function asked(
  used: number,
  classes: [string, Partial<Pair>, Partial<RequestClass>?][],
  fields: Partial<Resource> = {},
) {
  const read = report({
    resources: [
      resource({ used: [used, used], saturated_share: 0, basis: "seen", verdict_seconds: 30, ...fields }),
    ],
    classes: classes.map(([name, its, more]) => requestClass(name, [pair(its)], { ...SEARCH, ...more })),
  });
  const [db] = read.resources;
  assert.ok(db);
  const found = answer(read, db);
  return { ...found, text: plain(found.words) };
}

test("a culprit of a full resource: what it takes, what it does to others, and what a throttle gives back", () => {
  const found = asked(3.9, [["GET /search", { confidence: "strong", share: 0.66, cost_ms: 110 }]]);
  assert.equal(
    found.text,
    "GET /search takes 2.64 of db’s 4 CPUs, 68 % of what is used there, and slows all others; " +
      "throttling it from 24/s to 14/s would give back 1.1 CPUs.",
  );
  assert.deepEqual([found.degree, found.form, found.subject?.it.name], [3, "sure", "GET /search"]);
  assert.deepEqual(found.act.kind === "rate" && [found.act.perSecond, found.act.seconds], [14, 600]);
});

test("a likely one is said with less certainty, and where there is room that is said", () => {
  const found = asked(2, [["GET /search", { confidence: "likely", share: 0.25 }]]);
  assert.equal(
    found.text,
    "GET /search probably takes 1 of db’s 4 CPUs, 50 % of what is used there; at 50 % there is room, and others " +
      "hardly wait; throttling it from 24/s to 12/s would give back about 0.5 CPUs.",
  );
  assert.match(asked(3, [["a", { confidence: "likely", share: 0.2 }]]).text, /at 75 % others begin to wait/);
});

test("of a class with a small part of a full resource it is not said that it slows all others", () => {
  const of = (share: number) => asked(4, [["a", { confidence: "strong", share }]]).text;
  assert.match(of(0.26), /slows all others/);
  assert.match(of(0.24), /; the CPU is full, so all wait; /);
});

test("doubts are said, and the throttle that is proposed is short", () => {
  const slow = asked(4, [["GET /export", { confidence: "from occupancy", doubtful: true, share: 0.5 }]], {
    saturated_share: 0.9,
  });
  assert.match(
    slow.text,
    /^GET \/export may take up to 2 of db’s 4 CPUs, .*, or is merely slow: the CPU is full, so only durations/,
  );
  assert.match(slow.text, /count; throttling it .* would give back at most/);
  assert.deepEqual([slow.form, slow.act.kind === "rate" && slow.act.seconds], ["doubtful", 60]);
  const early = (confidence: "strong" | "likely") =>
    asked(4, [["a", { confidence, share: 0.5 }]], { basis: "not yet" }).text;
  assert.match(
    early("likely"),
    /^a may take 2 of db’s 4 CPUs.*, but too little was seen so far; the CPU is full/,
  );
  assert.match(
    early("strong"),
    /^a probably takes 2 of .*, by the little that was seen so far, and slows all/,
  );
});

test("classes that cannot be separated are named together, and an experiment is proposed", () => {
  const twins: [string, Partial<Pair>][] = [
    ["POST /cart", { confidence: "ambiguous", share: 0.3, ambiguous_with: ["GET /cart"] }],
    ["GET /cart", { confidence: "ambiguous", share: 0.1, ambiguous_with: ["POST /cart"] }],
  ];
  const found = asked(3, twins);
  assert.match(found.text, /^POST \/cart or GET \/cart, or both, may take 1\.6 of db’s 4 CPUs/);
  assert.match(found.text, /; they run at the same times; .*; an experiment of some 20 s decides which\.$/);
  assert.equal(found.act.kind, "experiment");
});

test("what hinders a throttle is said in its place", () => {
  const of = (more: Partial<RequestClass>) => asked(3, [["a", { confidence: "strong", share: 0.3 }, more]]);
  const throttle = { class: "a", limits: "rate 8", by: "operator" } as RequestClass["throttle"];
  assert.match(
    of({ throttle }).text,
    /; 75 % of the CPU were used in the last 10 s; it is throttled already \(rate 8\)\.$/,
  );
  assert.equal(of({ throttle }).act.kind, "change");
  assert.match(of({ pattern: null }).text, /no method and path of its own/);
  assert.match(of({ per_second: 0.01 }).text, /too seldom/);
});

test("a cost that a full resource hides makes the gain a lower bound", () => {
  const hidden = {
    confidence: "strong",
    share: 0.3,
    cost_bounded: true,
    cost_low_ms: 2,
    cost_high_ms: 9,
  } as const;
  assert.match(asked(4, [["a", hidden]]).text, /would give back at least /);
});

test("without a culprit it says so, and how sure that is", () => {
  const sure = (found: ReturnType<typeof asked>) => [found.degree, found.form, found.subject];
  const none = asked(2.4, [["a", { share: 0.3 }]]);
  assert.match(
    none.text,
    /^No class stands out at db cpu \(60 % used\), and that is fairly sure: simulated, 95 of 100 /,
  );
  assert.deepEqual(sure(none), [2, "probable", null]);
  const full = asked(4, [], { saturated_share: 0.8 });
  assert.match(full.text, /but that is not sure: it is full 80 % of the time, which hides causes/);
  assert.deepEqual(sure(full), [1, "doubtful", null]);
  assert.match(asked(0.2, []).text, /^No class loads db cpu: 5 % of it are used\.$/);
  assert.match(asked(2, [], { basis: "not yet" }).text, /not known yet/);
  assert.match(asked(2, [], { verdict_seconds: null }).text, /no verdict on it yet/);
  assert.match(asked(2, [], { unit: "per second" }).text, /no capacity to share out/);
});

test("amounts are CPUs where the resource has them", () => {
  const of = (fields: Partial<Resource>) => {
    const [it] = report({ resources: [resource(fields)] }).resources;
    assert.ok(it);
    return amountOf(0.5, it);
  };
  assert.equal(of({ name: "shop cpu", capacity: 1 }), "0.5 of shop’s 1 CPU");
  assert.equal(of({ name: "db disk", capacity: 1, unit: "busy" }), "50 % of db disk");
  assert.equal(of({ name: "db\u202e cpu" }), "2 of db\ufffd’s 4 CPUs");
});

test("use is compared over the window of the verdicts", () => {
  const [it] = report({
    resources: [
      resource({ used: [4, 4, 1, 1], step_seconds: 15, t0: 100, verdict_seconds: 30, evaluated_at: 160 }),
    ],
  }).resources;
  assert.ok(it);
  assert.equal(useOfVerdicts(it), 0.25);
  assert.equal(press(it), "room");
  assert.equal(press({ ...it, saturated_share: 0.2 }), "full");
  assert.equal(press({ ...it, evaluated_at: null }), "room");
  assert.equal(press({ ...it, used: [] }), "unknown");
});
