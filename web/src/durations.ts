// Counts of requests by time and duration: buckets, sums, quantiles.
//
//   bucket i of n edges     [edge i, edge i+1), or with n + 1 buckets [edge i-1, edge i), where what
//                           lies outside of the edges is taken to reach a factor of 2 beyond
//   middle of a bucket      geometric mean of its bounds
//   quantile                linear in the logarithm within its bucket

import type { Heatmap, Maybe } from "./report";

export interface Bucket {
  low: number;
  high: number;
  middle: number;
}

export interface Span {
  from: number;
  to: number;
}

/** Bounds of a heat map's buckets in milliseconds. */
export function buckets(map: Heatmap): Bucket[] {
  const edges = map.edges_ms;
  const first = edges[0];
  const last = edges.at(-1);
  if (first === undefined || last === undefined) return [];
  const open = map.cells.some((cell) => cell.counts.some((row) => row.length > edges.length));
  const bounds = open ? [first / 2, ...edges, last * 2] : edges;
  return bounds.slice(1).map((high, index) => {
    const low = bounds[index] ?? high;
    return { low, high, middle: Math.sqrt(low * high) };
  });
}

/** How many rows (steps of time) the map has. */
export function rowCount(map: Heatmap): number {
  return map.cells.reduce((most, cell) => Math.max(most, cell.counts.length), 0);
}

/** Begin and end of the whole map. */
export function wholeSpan(map: Heatmap): Span {
  return { from: map.t0, to: map.t0 + rowCount(map) * map.step_seconds };
}

/** Begin of a row. */
export function rowTime(map: Heatmap, row: number): number {
  return map.t0 + row * map.step_seconds;
}

/** Whether the middle of a row lies within a span. */
export function rowInside(map: Heatmap, row: number, span: Span): boolean {
  const middle = rowTime(map, row) + map.step_seconds / 2;
  return middle >= span.from && middle < span.to;
}

/** Adds the second to the first. */
export function addCounts(to: number[], counts: readonly number[]): void {
  counts.forEach((value, index) => {
    to[index] = (to[index] ?? 0) + value;
  });
}

/** Counts of the classes that are wanted, as [time][bucket]. */
export function sumRows(map: Heatmap, wanted: (name: string) => boolean): number[][] {
  const width = buckets(map).length;
  const rows = Array.from({ length: rowCount(map) }, () => new Array<number>(width).fill(0));
  for (const cell of map.cells) {
    if (!wanted(cell.class)) continue;
    cell.counts.forEach((counts, index) => addCounts(rows[index] ?? [], counts));
  }
  return rows;
}

/** Counts of all rows, by bucket. */
export function sumBuckets(rows: readonly (readonly number[])[]): number[] {
  const sum: number[] = [];
  for (const row of rows) addCounts(sum, row);
  return sum;
}

export function total(counts: readonly number[]): number {
  return counts.reduce((sum, value) => sum + value, 0);
}

/** The duration in milliseconds that a share `q` of the requests does not exceed; null without any. */
export function quantile(counts: readonly number[], bounds: readonly Bucket[], q: number): Maybe {
  const wanted = total(counts) * q;
  if (total(counts) === 0) return null;
  let before = 0;
  for (const [index, value] of counts.entries()) {
    const bucket = bounds[index];
    if (!bucket) break;
    if (value > 0 && before + value >= wanted) {
      const within = Math.max(0, (wanted - before) / value);
      return bucket.low * Math.pow(bucket.high / bucket.low, within);
    }
    before += value;
  }
  return bounds.at(-1)?.high ?? null;
}

/** A span on whole rows, within the map, at least one row long; null if it holds nothing or all. */
export function snapped(map: Heatmap, span: Span): Span | null {
  const rows = rowCount(map);
  const row = (time: number) => Math.round((time - map.t0) / map.step_seconds);
  const first = Math.max(0, Math.min(row(span.from), row(span.to)));
  const last = Math.min(rows, Math.max(row(span.from), row(span.to)));
  const end = Math.max(first + 1, last);
  if (first >= rows || last <= 0 || (first === 0 && end >= rows)) return null;
  return { from: rowTime(map, first), to: rowTime(map, end) };
}
