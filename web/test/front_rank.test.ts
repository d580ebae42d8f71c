import assert from "node:assert/strict";
import { test } from "node:test";
import { fold, fullness, matching, sign, UNCHOSEN } from "../src/front/fold";
import {
  complaints,
  judged,
  neighbours,
  siteLevel,
  worstNodesFirst,
  worstSitesFirst,
} from "../src/front/rank";
import { node, site } from "./front_samples";

test("a node is as bad as what clients notice of it", () => {
  const level = (change: Parameters<typeof node>[0]) =>
    judged(site({ nodes: [node({}), node(change)] }))[1]?.level;
  assert.equal(level({}), "good");
  assert.equal(level({ state: "ejected" }), "bad");
  assert.equal(level({ state: "failing" }), "bad");
  assert.equal(level({ errors: 5, rate: 100 }), "bad");
  assert.equal(level({ errors: 4.9, rate: 100 }), "warn");
  assert.equal(level({ tasks: 12, cpus: 8, cpu: 0.95 }), "warn");
  assert.equal(level({ tasks: 11, cpus: 8, cpu: 0.95 }), "good");
  assert.equal(level({ tasks: 12, cpus: 8, cpu: null }), "warn");
  // Several at once are no overload of CPUs that are idle in between, nor is one on a part of a CPU.
  assert.equal(level({ tasks: 12, cpus: 8, cpu: 0.5 }), "good");
  assert.equal(level({ tasks: 1, cpus: 0.25, cpu: 1 }), "good");
  assert.equal(level({ tasks: 2, cpus: 0.25, cpu: 1 }), "warn");
  // That there was an error some minutes ago is said, and no trouble now.
  assert.equal(level({ note: "last error: connect, 4 min ago" }), "good");
  assert.equal(level({ tasks: null, cpus: null, cpu: null }), "warn");
  // What an operator wants is nothing that is wrong.
  assert.equal(level({ state: "drain", note: "drained by anna" }), "note");
});

test("a load that is not known is no trouble where none is read", () => {
  const silent = node({ tasks: null, cpus: null, cpu: null, age: null, source: "none" });
  assert.deepEqual(
    judged(site({ nodes: [silent, silent] })).map((it) => it.level),
    ["good", "good"],
  );
});

test("the worst nodes come first, the others as they were", () => {
  const nodes = [
    node({ name: "a" }),
    node({ name: "b", errors: 1 }),
    node({ name: "c", state: "ejected" }),
    node({ name: "d" }),
  ];
  const names = worstNodesFirst(judged(site({ nodes }))).map((it) => it.node.name);
  assert.deepEqual(names, ["c", "b", "a", "d"]);
});

test("a site is as bad as what it loses", () => {
  const level = (change: Parameters<typeof site>[0]) => {
    const it = site(change);
    return siteLevel(it, judged(it));
  };
  assert.equal(level({}), "good");
  assert.equal(level({ candidates: 0 }), "bad");
  assert.equal(level({ candidates: 0, nodes: [] }), "good");
  assert.equal(level({ fail_open: true }), "bad");
  assert.equal(level({ refused: { no_room: 1 } }), "bad");
  assert.equal(level({ refused: { no_room: 0.9 } }), "warn");
  assert.equal(level({ queued: 3, queue_wait_p99_seconds: 0.1 }), "warn");
  assert.equal(level({ queued: 3, queue_wait_p99_seconds: 0.01 }), "good");
  assert.equal(level({ nodes: [node({ state: "ejected" })] }), "warn");
});

test("the worst sites come first, and about as bad ones keep their places", () => {
  const order = (a: number, b: number) =>
    worstSitesFirst([
      site({ name: "calm" }),
      site({ name: "a", errors: { connect: a } }),
      site({ name: "b", errors: { connect: b } }),
      site({ name: "none", candidates: 0 }),
    ]).map((it) => it.site.name);
  assert.deepEqual(order(5, 40), ["b", "a", "none", "calm"]);
  assert.deepEqual(order(5, 6), ["a", "b", "none", "calm"]);
  const waits = worstSitesFirst([site({ name: "calm" }), site({ name: "waits", queued: 3 })]);
  assert.deepEqual(
    waits.map((it) => it.site.name),
    ["waits", "calm"],
  );
});

test("what is wrong is said once", () => {
  const said = (change: Parameters<typeof node>[0]) =>
    judged(site({ nodes: [node({}), node(change)] }))
      .slice(1)
      .flatMap(complaints);
  assert.deepEqual(
    said({ state: "ejected", note: "ejected: 5 in a row (connect); it returns when it answers a probe" }),
    ["ejected: 5 in a row (connect)"],
  );
  assert.deepEqual(said({ state: "ejected", errors: 2 }), ["ejected", "2 errors/s"]);
  assert.deepEqual(said({ tasks: null, cpus: null, cpu: null }), ["its load is not known"]);
});

test("a share is seen beside the median of the others that are up", () => {
  const nodes = [
    node({ share: 0.7 }),
    node({ share: 0.1 }),
    node({ share: 0.2 }),
    node({ share: 0, state: "ejected" }),
  ];
  assert.equal(neighbours(nodes[0] ?? node({}), nodes), 0.2);
  assert.equal(neighbours(node({}), []), null);
});

const many = (count: number, change: (at: number) => Parameters<typeof node>[0] = () => ({})) =>
  site({ nodes: Array.from({ length: count }, (_, at) => node({ name: `n${at}`, ...change(at) })) });
const ranked = (it: ReturnType<typeof site>) => worstSitesFirst([it])[0] ?? assert.fail();

test("a few nodes have rows; of many only those that are wrong", () => {
  const few = fold(ranked(many(3)), 1, UNCHOSEN, "");
  assert.deepEqual([few.isOpen, few.rows.length, few.cells.length], [true, 3, 0]);
  const calm = fold(ranked(many(50)), 1, UNCHOSEN, "");
  assert.deepEqual([calm.isOpen, calm.rows.length, calm.cells.length, calm.rest], [false, 0, 50, 50]);
  const wrong = fold(ranked(many(50, (at) => (at === 7 ? { state: "ejected" } : {}))), 1, UNCHOSEN, "");
  assert.deepEqual([wrong.isOpen, wrong.rows.map((it) => it.node.name)], [true, ["n7"]]);
  // A fold hides no node that is wrong, and a click on a cell opens its row.
  const choice = { open: false, rows: 0, nodes: new Set(["n9"]) };
  const folded = fold(ranked(many(50, (at) => (at === 7 ? { state: "ejected" } : {}))), 1, choice, "");
  assert.deepEqual([folded.isOpen, folded.rows.map((it) => it.node.name)], [false, ["n7", "n9"]]);
});

test("a thousand wrong nodes are not a thousand rows", () => {
  const all = fold(ranked(many(1000, () => ({ state: "ejected" }))), 1, UNCHOSEN, "");
  assert.deepEqual([all.rows.length, all.cells.length, all.rest], [12, 1000, 988]);
});

test("a filter finds sites, nodes and states", () => {
  const it = many(3, (at) => (at === 1 ? { state: "ejected" } : {}));
  const found = (filter: string) => matching(it, judged(it), filter).map((one) => one.node.name);
  assert.equal(found("").length, 3);
  assert.equal(found(" SHOP ").length, 3);
  assert.deepEqual(found("n2"), ["n2"]);
  assert.deepEqual(found("eject"), ["n1"]);
  assert.deepEqual(found("wrong"), ["n1"]);
  assert.deepEqual(found("elsewhere"), []);
});

test("a cell says how full and how wrong a node is without colour", () => {
  const cell = (change: Parameters<typeof node>[0]) => {
    const one = judged(site({ nodes: [node({}), node(change)] }))[1] ?? assert.fail();
    return [fullness(one), sign(one)];
  };
  assert.deepEqual(cell({ cpu: 0.99 }), ["l9", ""]);
  assert.deepEqual(cell({ cpu: 1, tasks: 30 }), ["over", "!"]);
  assert.deepEqual(cell({ cpu: null, tasks: null, state: "ejected" }), ["unknown", "✕"]);
  assert.deepEqual(cell({ state: "agent maint" }), ["l4", "m"]);
  assert.deepEqual(cell({ state: "switching" }), ["l4", "→"]);
});
