// The report: its shape, and a reader that believes nothing of what it is given.
//
// Times are Unix seconds; durations carry their unit in the name; what is not known is null.

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
  positive,
  some,
  text,
  wrong,
} from "./reader";

export { type Maybe, ReportError } from "./reader";

export const CLASSES_MAX = 200;
export const RESOURCES_MAX = 16;
export const STEPS_MAX = 600;
export const SCATTER_MAX = 300;
export const ROWS_MAX = 120;
export const BUCKETS_MAX = 32;
export const PAST_STEPS_MAX = 90;
const NOTES_MAX = 50;

/** How sure the verdict on a class is; null: it is not accused. */
export const CONFIDENCES = ["confirmed", "strong", "likely", "ambiguous", "from occupancy"] as const;
export type Confidence = (typeof CONFIDENCES)[number];

/** What a verdict rests on: too little was seen, what was known before the start, or what was seen. */
export const BASES = ["not yet", "before the start", "seen"] as const;

export interface Part {
  class: string;
  used: Maybe[];
}

export interface Resource {
  name: string;
  node: string | null;
  capacity: number;
  unit: string;
  step_seconds: number;
  t0: number;
  used: Maybe[];
  parts: Part[];
  verdict_seconds: Maybe;
  /** What verdicts rest on besides that; null of recordings and rates. */
  basis: (typeof BASES)[number] | null;
  saturated_share: Maybe;
  evaluated_at: Maybe;
}

export interface Pair {
  resource: string;
  share: Maybe;
  cost_ms: Maybe;
  cost_error: Maybe;
  /** What a request costs at least and at the most. */
  cost_low_ms: Maybe;
  cost_high_ms: Maybe;
  /** Whether a full resource or a throttle makes that range, and no mere error. */
  cost_bounded: boolean;
  /** The least cost that would have been named. */
  least_cost_ms: Maybe;
  lift: Maybe;
  t: Maybe;
  z: Maybe;
  rm: Maybe;
  p: Maybe;
  p_adjusted: Maybe;
  pearson_r: Maybe;
  pearson_p: Maybe;
  confidence: Confidence | null;
  /** It rests on durations alone: the class may be merely slow. */
  doubtful: boolean;
  ambiguous_with: string[];
  named_at: Maybe;
  shift_ms: number[];
  shift_r: Maybe[];
  scatter: number[][];
}

export interface Throttle {
  /** The class that the override names. */
  class: string;
  limits: string;
  by: string;
  since: Maybe;
  until: Maybe;
  held: Maybe;
  held_ms: Maybe;
  in_flight: Maybe;
  waiting: Maybe;
}

export interface RequestClass {
  name: string;
  /** What an override on its requests, and on no others, calls it; null where there can be none. */
  pattern: string | null;
  requests: number;
  per_second: Maybe;
  in_progress: Maybe;
  p50_ms: Maybe;
  p90_ms: Maybe;
  p99_ms: Maybe;
  max_ms: Maybe;
  throttle: Throttle | null;
  pairs: Pair[];
}

export interface Cell {
  class: string;
  /** [time][bucket] */
  counts: number[][];
}

export interface Heatmap {
  t0: number;
  step_seconds: number;
  /** Ascending; n edges bound n - 1 buckets, or n + 1 with those below and above. */
  edges_ms: number[];
  cells: Cell[];
}

/** What classes took of a resource over the last 15 minutes, in units of its capacity. */
export interface Past {
  resource: string;
  step_seconds: number;
  t0: number;
  used: Maybe[];
  parts: Part[];
}

export interface Report {
  mode: "live" | "offline";
  from: number;
  to: number;
  requests: number;
  notes: string[];
  resources: Resource[];
  classes: RequestClass[];
  heatmap: Heatmap | null;
  past: Past[];
}

/** What is absent is not so. */
const flag: Reader<boolean> = (value, at) =>
  value === null || value === undefined ? false : boolean(value, at);

const samples = list(some, STEPS_MAX);

const resource = object<Resource>({
  name: text,
  node: maybe(text),
  capacity: positive,
  unit: text,
  step_seconds: positive,
  t0: number,
  used: samples,
  parts: list(object<Part>({ class: text, used: samples }), CLASSES_MAX),
  verdict_seconds: some,
  basis: maybe(oneOf(BASES)),
  saturated_share: some,
  evaluated_at: some,
});

const pair = object<Pair>({
  resource: text,
  share: some,
  cost_ms: some,
  cost_error: some,
  cost_low_ms: some,
  cost_high_ms: some,
  cost_bounded: flag,
  least_cost_ms: some,
  lift: some,
  t: some,
  z: some,
  rm: some,
  p: some,
  p_adjusted: some,
  pearson_r: some,
  pearson_p: some,
  confidence: maybe(oneOf(CONFIDENCES)),
  doubtful: flag,
  ambiguous_with: list(text, CLASSES_MAX),
  named_at: some,
  shift_ms: list(number, STEPS_MAX),
  shift_r: list(some, STEPS_MAX),
  scatter: list(list(number, 2), SCATTER_MAX),
});

const throttle = object<Throttle>({
  class: text,
  limits: text,
  by: text,
  since: some,
  until: some,
  held: some,
  held_ms: some,
  in_flight: some,
  waiting: some,
});

const requestClass = object<RequestClass>({
  name: text,
  pattern: maybe(text),
  requests: count,
  per_second: some,
  in_progress: some,
  p50_ms: some,
  p90_ms: some,
  p99_ms: some,
  max_ms: some,
  throttle: maybe(throttle),
  pairs: list(pair, RESOURCES_MAX),
});

const heatmap = object<Heatmap>({
  t0: number,
  step_seconds: positive,
  edges_ms: list(number, BUCKETS_MAX + 1),
  cells: list(
    object<Cell>({ class: text, counts: list(list(count, BUCKETS_MAX), ROWS_MAX) }),
    CLASSES_MAX + 1,
  ),
});

const pastSamples = list(some, PAST_STEPS_MAX);

const past = object<Past>({
  resource: text,
  step_seconds: positive,
  t0: number,
  used: pastSamples,
  parts: list(object<Part>({ class: text, used: pastSamples }), CLASSES_MAX),
});

const report = object<Report>({
  mode: oneOf(["live", "offline"] as const),
  from: number,
  to: number,
  requests: count,
  notes: list(text, NOTES_MAX),
  resources: list(resource, RESOURCES_MAX),
  classes: list(requestClass, CLASSES_MAX),
  heatmap: maybe(heatmap),
  past: list(past, RESOURCES_MAX),
});

/** Reads a report, or throws a ReportError. */
export function parseReport(value: unknown): Report {
  const read = report(value, "");
  const map = read.heatmap;
  if (map) {
    if (map.edges_ms.some((edge, index) => edge <= (map.edges_ms[index - 1] ?? 0))) {
      wrong("heatmap.edges_ms", "ascending numbers above zero");
    }
    for (const [index, cell] of map.cells.entries()) {
      const odd = cell.counts.some((row) => Math.abs(row.length - map.edges_ms.length) !== 1);
      if (odd) wrong(`heatmap.cells[${index}].counts`, "one bucket more than edges, or one less");
    }
  }
  for (const [index, it] of read.classes.entries()) {
    for (const [at, { shift_ms, shift_r }] of it.pairs.entries()) {
      const where = `classes[${index}].pairs[${at}].shift_r`;
      if (shift_ms.length !== shift_r.length) wrong(where, "as many numbers as shift_ms has");
    }
  }
  return read;
}

/** Whether there is nothing to show yet. */
export function isEmpty(read: Report): boolean {
  return read.resources.length === 0 && read.classes.length === 0;
}

/** What is known of a class and a resource. */
export function pairOf(it: RequestClass, resourceName: string | null): Pair | null {
  return it.pairs.find((one) => one.resource === resourceName) ?? null;
}

/** Mean of what is known; null if nothing is. */
export function mean(values: readonly Maybe[]): Maybe {
  let sum = 0;
  let known = 0;
  for (const value of values) {
    if (value === null) continue;
    sum += value;
    known += 1;
  }
  return known ? sum / known : null;
}
