// The overview: what is asked each second, and a reader for it.
//
// A node comes as a list, so that a thousand of them are a small answer; NODE_FIELDS has its order.

import {
  type Maybe,
  type Reader,
  boolean,
  count,
  list,
  maybe,
  number,
  object,
  oneOf,
  record,
  some,
  text,
  wrong,
} from "../reader";

export const SITES_MAX = 512;
export const NODES_MAX = 4096;
const OTHERS_MAX = 30;
const NAMES_MAX = 64;
export const REASONS_MAX = 32;

export const LEVELS = ["good", "warn", "bad"] as const;
export type Level = (typeof LEVELS)[number];

export interface Problem {
  level: Level;
  text: string;
}

export interface Headline extends Problem {
  others: Problem[];
}

export interface Node {
  name: string;
  /** Only `up` is good; `failing` and `ejected` are bad. */
  state: string;
  /** How its load is read. */
  source: string;
  /** Tasks that run or wait; it, `cpus` and `cpu` are null if the record is too old. */
  tasks: Maybe;
  cpus: Maybe;
  cpu: Maybe;
  /** Seconds since its load record was made; null if there never was one. */
  age: Maybe;
  in_flight: number;
  /** Its part in the site's answers. */
  share: Maybe;
  rate: number;
  p50: Maybe;
  p99: Maybe;
  errors: number;
  weight: number;
  /** What speaks against it, in words. */
  note: string | null;
}

/** Events per second by reason. */
export type Reasons = Record<string, number>;

export interface Grown {
  kind: string | null;
  in_flight: number;
}

export interface Site {
  name: string;
  policy: string;
  hosts: string[];
  paths: string[];
  candidates: number;
  fail_open: boolean;
  requests_per_second: number;
  p50_seconds: Maybe;
  p99_seconds: Maybe;
  queued: number;
  queue_wait_p99_seconds: Maybe;
  refused: Reasons;
  errors: Reasons;
  grown: Grown[];
  nodes: Node[];
}

export interface Overview {
  version: string;
  uptime_seconds: number;
  at_seconds: number;
  ready: boolean;
  draining: boolean;
  listeners: string[];
  front_ends: number;
  topology_version: number;
  newest_event: number;
  headline: Headline;
  recent: { requests_per_second: number; errors_per_second: number; p50_seconds: Maybe; p99_seconds: Maybe };
  load_age_p99_seconds: Maybe;
  in_flight: number;
  connections: number;
  completed: number;
  failed: number;
  rejected: number;
  cancelled: number;
  reader: { nodes: number; interval_seconds: Maybe; realtime: boolean | null; note: string | null };
  sites: Site[];
}

const rates = record(count, 1000);

/** Numbers by name, those with the largest first. */
export const reasons: Reader<Reasons> = (value, at) => {
  const all = Object.entries(rates(value, at)).filter(([, often]) => often > 0);
  return Object.fromEntries(all.sort((one, other) => other[1] - one[1]).slice(0, REASONS_MAX));
};

/** The order of a node's values. */
const NODE_FIELDS: { [K in keyof Node]-?: Reader<Node[K]> } = {
  name: text,
  state: text,
  source: text,
  tasks: some,
  cpus: some,
  cpu: some,
  age: some,
  in_flight: count,
  share: some,
  rate: count,
  p50: some,
  p99: some,
  errors: count,
  weight: number,
  note: maybe(text),
};
const NODE_READERS = Object.entries(NODE_FIELDS) as [keyof Node, Reader<Node[keyof Node]>][];

const node: Reader<Node> = (value, at) => {
  if (!Array.isArray(value)) return wrong(at, "a list");
  const read: Partial<Record<keyof Node, unknown>> = {};
  NODE_READERS.forEach(([name, reader], place) => (read[name] = reader(value[place], at)));
  return read as Node;
};

const problem = { level: oneOf(LEVELS), text };

const site = object<Site>({
  name: text,
  policy: text,
  hosts: list(text, NAMES_MAX),
  paths: list(text, NAMES_MAX),
  candidates: count,
  fail_open: boolean,
  requests_per_second: count,
  p50_seconds: some,
  p99_seconds: some,
  queued: count,
  queue_wait_p99_seconds: some,
  refused: reasons,
  errors: reasons,
  grown: list(object<Grown>({ kind: maybe(text), in_flight: count }), NAMES_MAX),
  nodes: list(node, NODES_MAX),
});

const overview = object<Overview>({
  version: text,
  uptime_seconds: count,
  at_seconds: count,
  ready: boolean,
  draining: boolean,
  listeners: list(text, NAMES_MAX),
  front_ends: count,
  topology_version: count,
  newest_event: count,
  headline: object<Headline>({ ...problem, others: list(object<Problem>(problem), OTHERS_MAX) }),
  recent: object<Overview["recent"]>({
    requests_per_second: count,
    errors_per_second: count,
    p50_seconds: some,
    p99_seconds: some,
  }),
  load_age_p99_seconds: some,
  in_flight: count,
  connections: count,
  completed: count,
  failed: count,
  rejected: count,
  cancelled: count,
  reader: object<Overview["reader"]>({
    nodes: count,
    interval_seconds: some,
    realtime: maybe(boolean),
    note: maybe(text),
  }),
  sites: list(site, SITES_MAX),
});

/** Reads an overview, or throws a ReportError. */
export function parseOverview(value: unknown): Overview {
  return overview(value, "");
}

export function total(reasons: Reasons): number {
  return Object.values(reasons).reduce((sum, often) => sum + often, 0);
}
