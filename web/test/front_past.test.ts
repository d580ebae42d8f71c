import assert from "node:assert/strict";
import { test } from "node:test";
import { area, line, stripPaths, stripSentence } from "../src/front/chart";
import { effect, secondsToAsk } from "../src/front/effect";
import { type Event, askAfter, filtered, merged, ticks } from "../src/front/events";
import { type History, STEPS, added, append, largest, parseHistory, sum, whole } from "../src/front/history";

function history(end: number, values: (number | null)[], load = "", reasons = {}): History {
  const list = [...values];
  return {
    step_seconds: 10,
    steps: values.length,
    end_seconds: end,
    sites: [
      {
        name: "shop",
        requests_per_second: list,
        refused_per_second: list,
        errors_per_second: list,
        p50_seconds: list,
        p99_seconds: list,
        queued: list,
        reasons,
      },
    ],
    nodes: [{ name: "n1", site: "shop", load }],
  };
}
const requests = (it: History | null) => it?.sites[0]?.requests_per_second ?? [];

test("the newest steps are put to those that are kept", () => {
  const kept = whole(history(1000, [1, 2, 3], "123"));
  assert.equal(requests(kept).length, STEPS);
  assert.deepEqual(requests(kept).slice(-4), [null, 1, 2, 3]);
  // One step on: the first of the two is known already, and what it says now counts.
  const one = append(kept, history(1010, [30, 4], "34"));
  assert.deepEqual(requests(one).slice(-5), [null, 1, 2, 30, 4]);
  assert.equal(one?.nodes[0]?.load.trim(), "1234");
  const two = append(kept, history(1020, [4, 5], "45"));
  assert.deepEqual(requests(two).slice(-5), [1, 2, 3, 4, 5]);
  const none = append(kept, history(1000, [20, 30], "23"));
  assert.deepEqual(requests(none).slice(-4), [null, 1, 20, 30]);
  assert.equal(requests(two).length, STEPS);
});

test("a gap, another clock or an empty answer has all asked again", () => {
  const kept = whole(history(1000, [1, 2, 3]));
  assert.equal(append(kept, history(1030, [4, 5])), null);
  assert.equal(append(kept, history(990, [4, 5])), null);
  assert.equal(append(kept, { ...history(1010, [4, 5]), step_seconds: 1 }), null);
  assert.equal(append(kept, { ...history(1010, [4, 5]), sites: [] }), null);
});

test("a node that has come from another site begins anew", () => {
  const kept = whole(history(1000, [1, 2], "12"));
  const newer = history(1010, [2, 3], "23");
  newer.nodes = [{ name: "n1", site: "blog", load: "23" }];
  assert.equal(append(kept, newer)?.nodes[0]?.load.trim(), "23");
});

test("reasons come and go step by step", () => {
  const sums = (it: History | null) =>
    Object.fromEntries(
      Object.entries(it?.sites[0]?.reasons ?? {}).map(([name, steps]) => [name, sum(steps)]),
    );
  const kept = whole(history(1000, [1, 2], "", { no_room: [5, 1] }));
  const next = append(kept, history(1010, [2, 3], "", { no_room: [2, 3], connect: [0, 1] }));
  assert.deepEqual(sums(next), { no_room: 10, connect: 1 });
  assert.equal(next?.sites[0]?.reasons["connect"]?.length, STEPS);
  // Steps without any of it push it out, and then it is none.
  let all: History | null = next;
  for (let step = 1; step <= STEPS; step++)
    all = all && append(all, history(1010 + step * 10, [3, 3], "", step === 1 ? { no_room: [4, 0] } : {}));
  assert.deepEqual(sums(all), {});
  assert.equal(largest(all?.sites[0]?.requests_per_second ?? []), 3);
});

test("what does not fit is refused with its place", () => {
  assert.throws(() => parseHistory({}), /history\.step_seconds: expected a number/);
  const wrong = { ...history(1000, [1]), nodes: [{ name: "n1", site: "shop", load: 3 }] };
  assert.throws(() => parseHistory(wrong), /nodes\[0\]\.load: expected a text/);
});

test("lists are added where either is known", () => {
  assert.deepEqual(added([1, null, null], [2, 3, null]), [3, 3, null]);
  assert.equal(largest([null, 2], [5, 1]), 5);
  assert.equal(largest([null]), 0);
});

test("paths have gaps where nothing is known", () => {
  assert.equal(area([1, null, 2], 2), "M0 100V50H1V100ZM2 100V0H3V100Z");
  assert.equal(line([1, 2, null, 1], 2), "M0.5 50L1.5 0M3 50H4");
  assert.equal(area([0, 0], 0), "M0 100V100H1V100H2V100Z");
});

test("a strip has heights, not only colours", () => {
  const paths = stripPaths("05+xd. ");
  assert.equal(paths.load, "M0 10v-1H1V10ZM1 10v-6H2V10Z");
  assert.equal(paths.over, "M2 10v-10H3V10Z");
  assert.equal(paths.out, "M3 10v-10H4V10Z");
  assert.equal(paths.away, "M4 10v-4H5V10Z");
  assert.equal(paths.unknown, "M5 10v-2H6V10Z");
  assert.equal(stripPaths("444").load, "M0 10v-5H3V10Z");
  assert.equal(stripSentence("444xxx", 10), "CPU use of the last 1 min; ejected for 0.5 min");
});

const event = (number: number, change: Partial<Event> = {}): Event => ({
  number,
  at_seconds: 1000 + number,
  times: 1,
  first_at_seconds: 1000 + number,
  kind: "ejected",
  level: "bad",
  site: "shop",
  node: "n1",
  by: null,
  text: "n1 is ejected",
  ...change,
});

test("events are kept newest first, each once", () => {
  const first = merged([], { since: 1, newest: 2, oldest: 1, events: [event(1), event(2)] });
  assert.deepEqual(
    first.map((it) => it.number),
    [2, 1],
  );
  const more = merged(first, { since: 1, newest: 3, oldest: 1, events: [event(2), event(3)] });
  assert.deepEqual(
    more.map((it) => it.number),
    [3, 2, 1],
  );
});

test("what happened again takes the place of the last time", () => {
  const kept = merged([], {
    since: 1,
    newest: 3,
    oldest: 1,
    events: [event(1), event(2, { node: "n2" }), event(3)],
  });
  const again = event(4, { times: 2, first_at_seconds: 1001 });
  const numbers = merged(kept, { since: 1, newest: 4, oldest: 2, events: [again] }).map((it) => it.number);
  assert.deepEqual(numbers, [4, 3, 2]);
});

test("events are asked for only where there are newer ones", () => {
  assert.equal(askAfter([], 0), null);
  assert.equal(askAfter([], 7), 0);
  assert.equal(askAfter([event(7)], 7), null);
  assert.equal(askAfter([event(7)], 9), 7);
  assert.equal(askAfter([event(7)], 2), 0);
});

test("filters leave what is of all sites", () => {
  const all = [
    event(1),
    event(2, { site: null, kind: "reloaded", level: "note" }),
    event(3, { site: "blog" }),
  ];
  const numbers = (filter: object) =>
    filtered(all, { kind: "", level: "", site: "", ...filter }).map((it) => it.number);
  assert.deepEqual(numbers({}), [1, 2, 3]);
  assert.deepEqual(numbers({ site: "shop" }), [1, 2]);
  assert.deepEqual(numbers({ kind: "reloaded" }), [2]);
  assert.deepEqual(numbers({ level: "bad", site: "blog" }), [3]);
  all.push(event(4, { kind: "rung", level: "note" }), event(5, { kind: "rung", level: "warn" }));
  assert.deepEqual(numbers({ site: "shop" }), [1, 2, 5], "what is routine");
  assert.deepEqual(numbers({ level: "all" }), [1, 2, 3, 4, 5]);
  assert.deepEqual(numbers({ level: "note" }), [2, 4]);
  assert.deepEqual(numbers({ kind: "rung" }), [4, 5]);
});

test("of many ticks the worst stay", () => {
  const many = Array.from({ length: 100 }, (_, at) =>
    event(at, { level: at === 5 ? "bad" : "note", at_seconds: at }),
  );
  const shown = ticks(many, "shop", 0, 100);
  assert.equal(shown.length, 40);
  assert.ok(shown.some((it) => it.event.number === 5));
  assert.equal(ticks([event(1, { site: "blog" })], "shop", 0, 2000).length, 0);
  assert.equal(ticks([event(1, { at_seconds: 50 })], "shop", 0, 100)[0]?.place, 0.5);
  const again = event(1, { at_seconds: 90, times: 7, first_at_seconds: 10 });
  assert.deepEqual(
    ticks([again], "shop", 0, 100).map((it) => it.place),
    [0.1, 0.9],
  );
  assert.deepEqual(ticks([event(1, { kind: "rung", level: "note", at_seconds: 50 })], "shop", 0, 100), []);
});

test("before and after an order are compared second by second", () => {
  const seconds = Array.from({ length: 40 }, (_, at) => (at < 20 ? 10 : 2));
  const past = { ...history(1040, seconds), step_seconds: 1 };
  const seen = effect(past, "shop", 1020.4);
  assert.ok(seen);
  assert.deepEqual(
    [seen.before.seconds, seen.before.requests, seen.before.errors, seen.before.p99],
    [10, 10, 20, 10],
  );
  assert.deepEqual([seen.after.seconds, seen.after.requests, seen.isOver], [10, 2, true]);
  const soon = effect(
    { ...past, end_seconds: 1024, sites: history(0, seconds.slice(0, 24)).sites },
    "shop",
    1020.4,
  );
  assert.deepEqual([soon?.after.seconds, soon?.isOver], [3, false]);
  assert.equal(effect(past, "blog", 1020), null);
  assert.equal(secondsToAsk(1000, 1004.5), 17);
});
