// What is different in a span of time: each class inside against itself outside.
//
//   requests          requests per second
//   time in progress  sum of durations per second: how many are in progress on average (Little)
//   slower            ratio of geometric mean durations
//
//   t = (a - b) / e,  e = sqrt(s² (1/n + 1/m))      over steps of time, pooled variance s²; for
//                                                   `slower` over logarithms of requests' durations
//   effect = sign(a - b) x (|a - b| - 2 e)          what it is at least, so that a class with few
//                                                   requests does not go before those with many
//
// A class is shown if |t| >= 3, the greatest effect first. Steps follow one another and are not independent, so t orders and
// sifts; it is no proof. Without a step inside or outside there is nothing to compare.

import { type Bucket, type Span, buckets, rowCount, rowInside } from "./durations";
import type { Cell, Heatmap } from "./report";

export const KINDS = ["in progress", "requests", "slower"] as const;
export type Kind = (typeof KINDS)[number];

/** Below this a difference is not shown. */
export const T_MIN = 3;
/** Fewer requests say nothing of durations. */
const SLOWER_REQUESTS_MIN = 5;

export interface Change {
  name: string;
  /** Per second, requests in progress, or milliseconds. */
  inside: number;
  outside: number;
  t: number;
  /** What it is ranked by; its sign is the direction. */
  effect: number;
}

/** Running sums of a sample. */
class Sample {
  private n = 0;
  private sum = 0;
  private squares = 0;

  add(value: number, times = 1): void {
    this.n += times;
    this.sum += value * times;
    this.squares += value * value * times;
  }

  get size(): number {
    return this.n;
  }

  get mean(): number {
    return this.n ? this.sum / this.n : 0;
  }

  /** Sum of squared deviations from the mean. */
  get deviation(): number {
    return this.n ? Math.max(0, this.squares - (this.sum * this.sum) / this.n) : 0;
  }
}

interface Difference {
  t: number;
  effect: number;
}

function compare(a: Sample, b: Sample): Difference {
  const difference = a.mean - b.mean;
  if (!a.size || !b.size || Math.abs(difference) < 1e-12) return { t: 0, effect: 0 };
  const freedom = a.size + b.size - 2;
  const variance = freedom > 0 ? (a.deviation + b.deviation) / freedom : 0;
  const error = Math.sqrt(variance * (1 / a.size + 1 / b.size));
  const sure = Math.max(0, Math.abs(difference) - 2 * error);
  return { t: difference / error, effect: Math.sign(difference) * sure };
}

function weight(kind: Kind, counts: readonly number[], bounds: readonly Bucket[], step: number): number {
  const requests = counts.reduce((sum, value, index) => {
    const each = kind === "requests" ? 1 : (bounds[index]?.middle ?? 0) / 1000;
    return sum + value * each;
  }, 0);
  return requests / step;
}

function change(map: Heatmap, cell: Cell, bounds: readonly Bucket[], span: Span, kind: Kind): Change | null {
  const sides = { inside: new Sample(), outside: new Sample() };
  for (let row = 0; row < rowCount(map); row += 1) {
    const side = rowInside(map, row, span) ? sides.inside : sides.outside;
    const counts = cell.counts[row] ?? [];
    if (kind === "slower") {
      counts.forEach((times, index) => side.add(Math.log(bounds[index]?.middle ?? 1), times));
    } else {
      side.add(weight(kind, counts, bounds, map.step_seconds));
    }
  }
  const { inside, outside } = sides;
  const found = compare(inside, outside);
  const shown = { name: cell.class, ...found };
  if (kind !== "slower") return { ...shown, inside: inside.mean, outside: outside.mean };
  if (Math.min(inside.size, outside.size) < SLOWER_REQUESTS_MIN) return null;
  return { ...shown, inside: Math.exp(inside.mean), outside: Math.exp(outside.mean) };
}

/** The classes that differ clearly, the greatest effect first, at most `max`. */
export function differences(map: Heatmap, span: Span, kind: Kind, max: number): Change[] {
  const bounds = buckets(map);
  return map.cells
    .map((cell) => change(map, cell, bounds, span, kind))
    .filter((it): it is Change => it !== null && Math.abs(it.t) >= T_MIN)
    .sort((a, b) => Math.abs(b.effect) - Math.abs(a.effect) || (a.name < b.name ? -1 : 1))
    .slice(0, max);
}
