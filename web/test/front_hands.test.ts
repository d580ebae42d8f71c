import assert from "node:assert/strict";
import { test } from "node:test";
import { classOf, label, orderOf, saying, typedOperator, typedWeight, undo } from "../src/front/hands";
import { hashOf, parseHash } from "../src/front/hash";
import { countsOf, countsPath, moveSentence, movesRows, parseMoves } from "../src/front/moves";
import { parseOverview } from "../src/front/overview";
import { fieldsOf, parsePlan, parseRequests, requestLine, storyOf, throttlesOf } from "../src/front/why";
import {
  ago,
  count,
  large,
  readSentence,
  reasonsPerSecond,
  shareSentence,
  span,
  time,
} from "../src/front/words";
import { node, overview, site } from "./front_samples";

const SEEN = overview({});
const DRAIN = { kind: "drain", node: "n1", site: "shop" } as const;

test("orders have the names of the interface", () => {
  assert.deepEqual(orderOf(DRAIN), { path: "/api/nodes/n1/drain", body: null });
  assert.deepEqual(orderOf({ ...DRAIN, kind: "weight", weight: 2 }), {
    path: "/api/nodes/n1/weight",
    body: { weight: 2 },
  });
  assert.deepEqual(orderOf({ ...DRAIN, kind: "move", to: "blog" }), {
    path: "/api/moves",
    body: { node: "n1", site: "blog" },
  });
  assert.deepEqual(orderOf({ kind: "release", site: "shop", class: "shop GET /a" }), {
    path: "/api/release",
    body: { class: "shop GET /a" },
  });
  assert.deepEqual(orderOf({ kind: "freeze", site: "shop" }), {
    path: "/api/moves/freeze",
    body: { site: "shop" },
  });
  assert.equal(orderOf({ ...DRAIN, node: "a/b" }).path, "/api/nodes/a%2Fb/drain");
});

test("it is said what an order does, and whom it concerns", () => {
  const { lines, warning } = saying(DRAIN, SEEN);
  assert.equal(
    lines.join(" "),
    "n1 gets no new requests of shop from this front-end. Those in flight end by themselves. " +
      "It answers 50 requests/s, 50 % of the site's, and has 3 requests in flight from here.",
  );
  assert.equal(warning, "Only one other node of shop is up.");
  const alone = overview({ sites: [site({ nodes: [node({})] })] });
  assert.match(saying(DRAIN, alone).warning ?? "", /no other node/);
  const last = overview({ sites: [site({ nodes: [node({}), node({ name: "n2", state: "ejected" })] })] });
  assert.match(saying(DRAIN, last).warning ?? "", /No other node of shop is up/);
  assert.match(saying({ ...DRAIN, kind: "weight", weight: 3 }, SEEN).lines[0] ?? "", /weighs 3 instead of 1/);
});

test("what can be taken back is offered", () => {
  assert.deepEqual(undo(DRAIN, SEEN), { ...DRAIN, kind: "ready" });
  assert.deepEqual(undo({ ...DRAIN, kind: "weight", weight: 3 }, SEEN), {
    ...DRAIN,
    kind: "weight",
    weight: null,
  });
  assert.deepEqual(undo({ ...DRAIN, kind: "move", to: "blog" }, SEEN), {
    ...DRAIN,
    kind: "move",
    site: "blog",
    to: "shop",
  });
  assert.equal(undo({ kind: "reload" }, SEEN), null);
  assert.equal(label({ kind: "thaw", site: "shop" }), "Thaw shop");
});

test("names, weights and classes that make no sense are not sent", () => {
  assert.equal(typedOperator("  anna  b "), "anna b");
  assert.throws(() => typedOperator(" "), /name is needed/);
  for (const bad of ["änna", "a\nb", "a".repeat(65), "a:b"])
    assert.throws(() => typedOperator(bad), RangeError);
  assert.equal(typedWeight(" 0.5 "), 0.5);
  for (const bad of ["", "x", "-1", "1e9"]) assert.throws(() => typedWeight(bad), RangeError);
  assert.equal(classOf("shop", " GET /a "), "shop GET /a");
  assert.equal(classOf("shop", "shop GET /a"), "shop GET /a");
  assert.throws(() => classOf("shop", ""), RangeError);
});

test("what is open survives in the address", () => {
  const shown = {
    topic: { kind: "node", name: "a:b c&d" },
    filter: "n 1",
    open: new Map([
      ["shop", false],
      ["blog", true],
    ]),
  } as const;
  const read = parseHash(hashOf({ ...shown, open: new Map(shown.open) }));
  assert.deepEqual(read.topic, shown.topic);
  assert.deepEqual([read.filter, read.open.get("shop"), read.open.get("blog")], ["n 1", false, true]);
  assert.equal(hashOf({ topic: null, filter: "", open: new Map() }), "");
  assert.equal(parseHash("#why=script:x").topic, null);
  assert.equal(parseHash("#why=node:").topic, null);
});

test("an overview is read, and what does not fit is refused with its place", () => {
  const row = ["n1", "up", "agent", 1, 8, 0.1, 0.001, 2, 0.5, 10, 0.1, 0.2, 0, 1, null];
  const raw = { ...SEEN, sites: [{ ...SEEN.sites[0], nodes: [row], refused: { a: 1, b: 3, c: 0 } }] };
  const read = parseOverview(raw);
  assert.equal(read.sites[0]?.nodes[0]?.rate, 10);
  assert.deepEqual(Object.keys(read.sites[0]?.refused ?? {}), ["b", "a"]);
  const wrong = (nodes: unknown) => () => parseOverview({ ...raw, sites: [{ ...raw.sites[0], nodes }] });
  assert.throws(wrong([["n1", 3]]), /sites\[0\]\.nodes\[0\]: expected a text/);
  assert.throws(wrong([{}]), /expected a list/);
  assert.throws(() => parseOverview(null), /expected an object/);
});

test("numbers are read as people say them", () => {
  assert.deepEqual([0.00089, 0.0012, 0.45, 2.34, 100, null].map(time), [
    "890 µs",
    "1.2 ms",
    "450 ms",
    "2.3 s",
    "1 min 40 s",
    "–",
  ]);
  assert.deepEqual([5, 60, 3600, 90_000].map(span), ["5 s", "1 min", "1 h", "1 d 1 h"]);
  assert.deepEqual([0.4, 12, 90, 7260].map(ago), ["just now", "12 s ago", "1 min ago", "2 h 1 min ago"]);
  assert.deepEqual([0.04, 9.96, 1234.5, null].map(count), ["0", "10", "1,235", "–"]);
  assert.deepEqual([999, 182_733_021, 4.2e9].map(large), ["999", "183 M", "4.20 G"]);
  assert.equal(
    reasonsPerSecond({ a_b: 1, "5xx": 20, c: 2, d: 3 }),
    "20/s server errors (5xx), 3/s d, 2/s c, and 1 reason more",
  );
});

test("how old a load is stands with what read it", () => {
  assert.equal(readSentence(node({})), "read 1.2 ms ago by its agent");
  assert.equal(
    readSentence(node({ source: "agent" })),
    "read 1.2 ms ago by its agent, not at real-time priority",
  );
  assert.equal(
    readSentence(node({ age: 4, tasks: null, cpu: null })),
    "read 4.0 s ago by its agent, too old to go by",
  );
  assert.equal(readSentence(node({ age: null, source: "none" })), "load not read");
  assert.equal(readSentence(node({ source: "new_way" })), "read 1.2 ms ago by new way");
  assert.equal(shareSentence(0.34, 0.33), "34 % of the site's answers, its neighbours 33 %");
});

test("why: sentences first, all numbers behind them", () => {
  const story = storyOf({
    text: "One.\n\nTwo.",
    reasons: ["no"],
    terms: [{ name: "wait_seconds", value: 0.002 }],
  });
  assert.deepEqual(story.sentences, ["One.", "Two."]);
  assert.deepEqual(story.fields, [
    ["terms 1 · name", "wait_seconds"],
    ["terms 1 · value", "0.002"],
  ]);
  assert.deepEqual(storyOf({ reasons: ["a", "b"] }).sentences, ["a", "b"]);
  assert.deepEqual(fieldsOf({ age_seconds: 0.0012, ok: true, list: [1, 2], none: null }), [
    ["age seconds", "1.2 ms"],
    ["ok", "yes"],
    ["list", "1, 2"],
    ["none", "–"],
  ]);
  let deep: unknown = 1;
  for (let at = 0; at < 1000; at += 1) deep = { deep };
  assert.equal(fieldsOf(deep).length, 1);
});

test("a request is a line", () => {
  const [read] = parseRequests({
    requests: [
      {
        id: "1-2",
        seconds_ago: 12,
        node: "n1",
        method: "GET",
        path: "/a",
        status: 502,
        reason: "no_room",
        tries: 1,
        duration_seconds: 0.002,
        sentence: "s",
      },
    ],
  });
  assert.ok(read);
  assert.equal(requestLine(read), "GET /a, 502 no room, at n1, took 2.0 ms, 12 s ago");
});

test("a plan has a line for each change", () => {
  const plan = parsePlan({
    applied: false,
    changes: [
      { what: "node n4", key: null, before: null, after: "10.0.0.4:80" },
      { what: "site shop", key: "policy", before: "auto", after: null },
    ],
    upgrade: [{ what: "node n3", key: null, before: "10.0.0.3:80", after: null }],
    notes: ["a note"],
  });
  assert.deepEqual(plan.changes, ["+ node n4 10.0.0.4:80", "~ site shop: policy = auto → not set"]);
  assert.deepEqual([plan.upgrade, plan.restart, plan.notes], [["− node n3 10.0.0.3:80"], [], ["a note"]]);
});

test("a class without a site is of all sites", () => {
  const all = ["shop GET /a", "blog GET /b", "GET /c"].map((it) => ({
    class: it,
    set_by: "operator",
    waiting: 0,
  }));
  const own = throttlesOf(all, "shop", ["shop", "blog"]).map((it) => it.class);
  assert.deepEqual(own, ["shop GET /a", "GET /c"]);
});

test("moves are worked back to how many nodes each site had", () => {
  const move = {
    number: 1,
    node: "b1",
    from: "blog",
    to: "shop",
    cause: "operator",
    pressure: null,
    expected: null,
  };
  const of = (name: string, nodes: number) => ({
    site: name,
    nodes,
    frozen: false,
    pressure: null,
    verdict: "",
  });
  const raw = {
    dry_run: false,
    paused: false,
    trouble: null,
    sites: [of("shop", 2), of("blog", 2), of("rest", 1)],
    under_way: [],
    moves: [{ ...move, at: new Date(940_000).toISOString(), failed: null }],
  };
  const moves = parseMoves(raw, 1000, 5000);
  const [shop] = moves.sites;
  assert.ok(shop);
  const counts = countsOf(shop, moves.all, moves.known);
  assert.deepEqual(counts, [
    [60, 2],
    [600, 1],
  ]);
  assert.equal(countsPath(counts, 2), "M600 0V0H540V50H0");
  const { rows, rest, scale } = movesRows(moves, 2);
  assert.deepEqual([rows.map((it) => it.site.site), rest, scale], [["shop", "blog"], 1, 3]);
  assert.equal(moveSentence(moves.all[0] ?? assert.fail()), "b1: blog → shop (operator)");
});
