// What an override changed: the resource and all durations, before and after the click.
//
//   before   what the report at the click showed, up to the click, at most 30 s
//   after    what later reports showed, from 2 s after the click on (requests that were in progress
//            end first), the last 30 s of it
//
// Reports overlap; what a later one says of the same step counts, since requests that had not ended
// are in it. Bounded: a watch keeps 300 s.

import { type Bucket, addCounts, buckets, quantile, rowCount, rowTime, sumRows, total } from "./durations";
import { type Heatmap, type Maybe, type Report, mean } from "./report";

export const SETTLE_SECONDS = 2;
export const SIDE_SECONDS = 30;
const KEPT_SECONDS = 300;

export interface Side {
  /** Seconds that it covers. */
  seconds: number;
  /** Mean use of the resource. */
  used: Maybe;
  own: Durations;
  others: Durations;
}

export interface Durations {
  perSecond: Maybe;
  p50: Maybe;
  p99: Maybe;
}

interface Row {
  own: number[];
  others: number[];
}

/** Steps by their time; the oldest go first. */
class Kept<T> {
  private readonly steps = new Map<number, { time: number; value: T }>();

  set(time: number, step: number, value: T): void {
    this.steps.set(Math.round(time / step), { time, value });
  }

  forget(oldest: number): void {
    for (const [key, kept] of this.steps) {
      if (kept.time < oldest) this.steps.delete(key);
    }
  }

  between(from: number, to: number): { time: number; value: T }[] {
    const all = [...this.steps.values()].filter((it) => it.time >= from && it.time < to);
    return all.sort((a, b) => a.time - b.time);
  }
}

export class Watch {
  private readonly used = new Kept<Maybe>();
  private readonly rows = new Kept<Row>();
  private bounds: Bucket[] = [];
  private useStep = 1;
  private rowStep = 1;
  private last: number;
  readonly before: Side;

  /** `clicked` is in the report's time. */
  constructor(
    readonly name: string,
    readonly resource: string | null,
    readonly what: string,
    readonly clicked: number,
    report: Report,
  ) {
    this.last = clicked;
    this.keep(report);
    this.before = this.side(clicked - SIDE_SECONDS, clicked);
  }

  /** Takes in what a report says. */
  keep(report: Report): void {
    this.last = Math.max(this.last, report.to);
    const resource = report.resources.find((it) => it.name === this.resource);
    if (resource) {
      this.useStep = resource.step_seconds;
      resource.used.forEach((value, step) => {
        this.used.set(resource.t0 + step * resource.step_seconds, resource.step_seconds, value);
      });
    }
    if (report.heatmap) this.keepRows(report.heatmap);
    const oldest = this.last - KEPT_SECONDS;
    this.used.forget(oldest);
    this.rows.forget(oldest);
  }

  private keepRows(map: Heatmap): void {
    this.bounds = buckets(map);
    this.rowStep = map.step_seconds;
    const own = sumRows(map, (name) => name === this.name);
    const others = sumRows(map, (name) => name !== this.name);
    for (let row = 0; row < rowCount(map); row += 1) {
      this.rows.set(rowTime(map, row), map.step_seconds, { own: own[row] ?? [], others: others[row] ?? [] });
    }
  }

  /** Null as long as there is nothing to see. */
  after(): Side | null {
    const from = Math.max(this.clicked + SETTLE_SECONDS, this.last - SIDE_SECONDS);
    const side = this.side(from, Infinity);
    return side.seconds > 0 || side.used !== null ? side : null;
  }

  /** Use of the resource around the click, for a chart. */
  series(): { times: number[]; used: Maybe[] } {
    const steps = this.used.between(this.clicked - SIDE_SECONDS, Infinity);
    return { times: steps.map((it) => it.time), used: steps.map((it) => it.value) };
  }

  private side(from: number, to: number): Side {
    // A step that lies across the click belongs to neither side.
    const rows = this.rows.between(from, to - this.rowStep);
    const covered = rows.length * this.rowStep;
    const sum: Row = { own: [], others: [] };
    for (const { value } of rows) {
      addCounts(sum.own, value.own);
      addCounts(sum.others, value.others);
    }
    const used = this.used.between(from, to - this.useStep);
    return {
      seconds: covered,
      used: mean(used.map((it) => it.value)),
      own: this.durations(sum.own, covered),
      others: this.durations(sum.others, covered),
    };
  }

  private durations(counts: readonly number[], covered: number): Durations {
    return {
      perSecond: covered ? total(counts) / covered : null,
      p50: quantile(counts, this.bounds, 0.5),
      p99: quantile(counts, this.bounds, 0.99),
    };
  }
}
