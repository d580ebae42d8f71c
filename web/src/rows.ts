// The rows of the table: which classes, in which order, and which stand together.
//
// Classes that the data cannot separate form a group (the transitive closure of
// `ambiguous_with` among those that are shown). A group stands where its first member would stand,
// and its members follow one another.

import { claim, rank } from "./claim";
import { type Pair, type Report, type RequestClass, type Resource, pairOf } from "./report";

export const KEYS = [
  "class",
  "share",
  "cost",
  "r",
  "p",
  "error",
  "verdict",
  "rate",
  "p50",
  "p99",
  "throttle",
] as const;
export type Key = (typeof KEYS)[number];

export interface Sort {
  key: Key;
  descending: boolean;
}

export interface Row {
  it: RequestClass;
  pair: Pair | null;
  resource: Resource | null;
}

/** Rows that stand together: one class, or classes that nothing separates. */
export type Group = Row[];

/** What a row is sorted by; null goes last, whichever the direction. */
export function sortValue({ it, pair, resource }: Row, key: Key): number | string | null {
  switch (key) {
    case "class":
      return it.name;
    case "share":
      return pair?.share ?? null;
    case "cost":
      return pair?.cost_ms ?? null;
    case "r":
      return pair?.pearson_r ?? null;
    case "p":
      return pair?.pearson_p ?? null;
    case "error":
      return pair?.cost_error ?? null;
    case "verdict":
      return claim(pair, resource).degree === 0 ? null : rank(pair, resource);
    case "rate":
      return it.per_second;
    case "p50":
      return it.p50_ms;
    case "p99":
      return it.p99_ms;
    case "throttle":
      return it.throttle ? (it.throttle.waiting ?? 0) : null;
  }
}

/** A sort that puts the interesting end first. */
export function firstDirection(key: Key): boolean {
  return key !== "class" && key !== "p" && key !== "error";
}

function compare(a: Row, b: Row, sort: Sort): number {
  const [x, y] = [sortValue(a, sort.key), sortValue(b, sort.key)];
  if (x !== y) {
    if (x === null) return 1;
    if (y === null) return -1;
    return x < y === sort.descending ? 1 : -1;
  }
  const share = (b.pair?.share ?? -1) - (a.pair?.share ?? -1);
  return share || (a.it.name < b.it.name ? -1 : a.it.name > b.it.name ? 1 : 0);
}

export interface Wanted {
  resource: string | null;
  sort: Sort;
  /** Part of the name, in any case; every word must be in it. */
  filter: string;
  /** Only classes that a verdict is about, or that are throttled. */
  accusedOnly: boolean;
}

/** Groups of rows in the order in which they are shown. */
export function groups(report: Report, wanted: Wanted): Group[] {
  const words = wanted.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const resource = report.resources.find((it) => it.name === wanted.resource) ?? null;
  const rows = report.classes
    .map((it) => ({ it, pair: pairOf(it, wanted.resource), resource }))
    .filter(({ it }) => words.every((word) => it.name.toLowerCase().includes(word)))
    .filter(({ it, pair }) => !wanted.accusedOnly || pair?.confidence != null || it.throttle !== null)
    .sort((a, b) => compare(a, b, wanted.sort));
  const leader = leaders(rows);
  const found = new Map<string, Group>();
  for (const row of rows) {
    const key = leader(row.it.name);
    const group = found.get(key);
    if (group) group.push(row);
    else found.set(key, [row]);
  }
  return [...found.values()];
}

/** Which name stands for the group of a name: union-find over `ambiguous_with`. */
function leaders(rows: readonly Row[]): (name: string) => string {
  const parent = new Map(rows.map(({ it }) => [it.name, it.name]));
  const find = (name: string): string => {
    let at = name;
    for (let up = parent.get(at); up !== undefined && up !== at; up = parent.get(at)) at = up;
    return at;
  };
  for (const { it, pair } of rows) {
    for (const other of pair?.ambiguous_with ?? []) {
      if (parent.has(other)) parent.set(find(other), find(it.name));
    }
  }
  return find;
}
