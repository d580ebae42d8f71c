import assert from "node:assert/strict";
import { test } from "node:test";
import { Watch } from "../src/effect";
import { type Typed, sentences, typedOverride } from "../src/override";
import { report, resource } from "./samples";

const EMPTY: Typed = { concurrency: "", rate: "", bandwidth: "", queue: "", duration: "" };

test("an override has the names of the interface", () => {
  const override = typedOverride("GET /a", {
    concurrency: "2",
    rate: " 1.5 ",
    bandwidth: "64",
    queue: "3",
    duration: "600",
  });
  assert.deepEqual(override, {
    class: "GET /a",
    limits: { concurrency: 2, rate: 1.5, bandwidth: 65_536, queue_seconds: 3 },
    for_seconds: 600,
  });
  assert.deepEqual(typedOverride("GET /a", { ...EMPTY, concurrency: "1" }), {
    class: "GET /a",
    limits: { concurrency: 1 },
  });
});

test("an override is on the class as it stands, and on nothing wider", () => {
  for (const pattern of ["GET /search?page&q", "GET /%2A?", "GET /item/{*^new}?"]) {
    assert.equal(typedOverride(pattern, { ...EMPTY, concurrency: "1" }).class, pattern);
  }
});

test("an override that makes no sense is not sent", () => {
  const wrong: [Partial<Typed>, RegExp][] = [
    [{}, /at least one limit/],
    [{ queue: "2", bandwidth: "64" }, /makes requests wait/],
    [{ concurrency: "0" }, /from 1 to/],
    [{ concurrency: "1.5" }, /whole number/],
    [{ concurrency: "two" }, /a number/],
    [{ rate: "-1" }, /a number from/],
    [{ rate: "Infinity" }, /a number from/],
    [{ bandwidth: "0.5" }, /a number from/],
  ];
  for (const [typed, reason] of wrong) {
    assert.throws(() => typedOverride("GET /a", { ...EMPTY, ...typed }), reason);
  }
});

test("what will happen is said", () => {
  const said = sentences({ class: "a", limits: { concurrency: 1, queue_seconds: 2 }, for_seconds: 60 }).join(
    " ",
  );
  assert.equal(
    said,
    "At most one of its requests is in progress at once; the others wait. " +
      "One that has waited 2 s is answered 429. In force for 60 s, at this front-end.",
  );
});

test("a rate below what comes warns of waits that grow, unless they are bounded", () => {
  const said = (limits: { rate: number; queue_seconds?: number }, perSecond: number | null) =>
    sentences({ class: "a", limits }, perSecond).join(" ");
  assert.match(
    said({ rate: 8 }, 24),
    /24 are completed per second now: while so many come, each waits longer/,
  );
  for (const text of [
    said({ rate: 8 }, 7),
    said({ rate: 8 }, null),
    said({ rate: 8, queue_seconds: 2 }, 24),
  ]) {
    assert.doesNotMatch(text, /longer/);
  }
});

/** Sixty seconds to `to`: from `calm` on little is used and all are fast. */
function scene(to: number, calm: number) {
  const seconds = Array.from({ length: 60 }, (_, index) => to - 60 + index);
  const row = (time: number) => (time < calm ? [0, 10] : [20, 0]);
  return report({
    to,
    resources: [resource({ t0: to - 60, used: seconds.map((time) => (time < calm ? 4 : 1)) })],
    heatmap: {
      t0: to - 60,
      step_seconds: 1,
      edges_ms: [1, 10, 100],
      cells: [
        { class: "GET /a", counts: seconds.map(() => [1, 0]) },
        { class: "other", counts: seconds.map(row) },
      ],
    },
  });
}

test("before and after an override are compared", () => {
  const watch = new Watch("GET /a", "db cpu", "concurrency 2", 1000, scene(1000, 1000));
  assert.equal(watch.after(), null);
  const { before } = watch;
  assert.deepEqual([before.used, before.others.perSecond, before.own.perSecond], [4, 10, 1]);
  for (const to of [1002.5, 1005, 1020]) watch.keep(scene(to, 1000));
  const after = watch.after();
  assert.ok(after);
  assert.deepEqual([after.used, after.others.perSecond], [1, 20]);
  assert.ok((before.others.p99 ?? 0) > 50 && (after.others.p99 ?? 100) <= 10);
  assert.ok(after.seconds >= 17 && after.seconds <= 18);
});

test("what is kept is bounded, and what was before stays known", () => {
  const watch = new Watch("GET /a", "db cpu", "concurrency 2", 1000, scene(1000, 1000));
  for (let to = 1010; to <= 3000; to += 10) watch.keep(scene(to, 1000));
  assert.ok(watch.series().times.length <= 301);
  assert.equal(watch.before.used, 4);
  assert.ok((watch.after()?.seconds ?? 0) <= 30);
});
