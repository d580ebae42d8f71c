// The selected class: the verdict in sentences, and the evidence behind it, which is folded at first.

import uPlot from "uplot";
import { ChartBox, levelLine, numberAxis, ownAxis, rule, write } from "./chart";
import { byId, make, named, setText } from "./dom";
import { type Bucket, buckets, quantile, sumBuckets, sumRows, total } from "./durations";
import { amount, correlation, milliseconds, plural, printable } from "./format";
import { cssColour, fill, paint, swatch } from "./palette";
import type { Pair, Report, RequestClass, Resource } from "./report";
import type { State } from "./state";
import { evidence, shiftWords, spike, story } from "./verdict";

const HEIGHT = 200;

export class DetailView {
  private readonly shift = new ChartBox(byId("shift-chart"), HEIGHT);
  private readonly scatter = new ChartBox(byId("scatter-chart"), HEIGHT);
  private readonly durations = new ChartBox(byId("duration-chart"), HEIGHT);
  private readonly box = byId<HTMLDetailsElement>("evidence-box");
  private shown: string | null = null;
  private state: State | null = null;

  constructor() {
    this.box.addEventListener("toggle", () => this.evidence());
  }

  /** Unfolds the evidence, and brings it to where it is seen. */
  open(): void {
    this.box.open = true;
    // What is drawn makes the page longer: only then is there room to scroll.
    this.evidence();
    byId("detail").scrollIntoView({ block: "start" });
    this.box.querySelector("summary")?.focus({ preventScroll: true });
  }

  render(state: State): void {
    this.state = state;
    const it = state.class();
    const resource = state.resource();
    byId("detail").hidden = !it;
    if (!it || !state.report) return;
    const pair = it.pairs.find((one) => one.resource === resource?.name) ?? null;
    const slot = state.slots.slot(it.name);
    if (this.shown !== it.name) {
      this.shown = it.name;
      byId("detail-name").replaceChildren(named(it.name));
    }
    byId("detail-swatch").replaceChildren(...(slot === null ? [] : [swatch(slot)]));
    const said = story(it, pair, resource);
    if (said.join() !== byId("story").dataset["said"]) {
      byId("story").dataset["said"] = said.join();
      byId("story").replaceChildren(...said.map((text) => make("p", "", text)));
    }
    this.evidence();
  }

  /** What is folded away is not drawn: it has no width. */
  private evidence(): void {
    const it = this.state?.class();
    const resource = this.state?.resource() ?? null;
    if (!this.box.open || !this.state?.report || !it) return;
    const pair = it.pairs.find((one) => one.resource === resource?.name) ?? null;
    const slot = this.state.slots.slot(it.name);
    setText(byId("shift-words"), (pair && shiftWords(pair)) ?? "");
    const facts = pair ? evidence(pair) : [];
    byId("evidence").replaceChildren(
      ...facts.map(([term, value, what]) => {
        const box = make("div", "", make("dt", "", term), make("dd", "", value));
        box.append(make("dd", "soft note", what));
        return box;
      }),
    );
    this.drawShift(pair, slot);
    this.drawScatter(pair, resource, slot);
    this.drawDurations(this.state.report, it, slot);
  }

  private drawShift(pair: Pair | null, slot: number | null): void {
    const known = pair !== null && pair.shift_ms.length > 1;
    absent("shift", known, "The report has no shift curve for this class and resource.");
    if (!known) return this.shift.clear();
    const found = spike(pair);
    const says = found
      ? `correlation ${correlation(found.at0)} as it was, at most ${correlation(found.elsewhere)} when shifted`
      : "correlation by shift in time";
    setText(byId("shift-note"), found ? shiftNote(found.at0, found.elsewhere) : "");
    this.shift.draw(says, () => shiftOptions(pair, slot));
  }

  private drawScatter(pair: Pair | null, resource: Resource | null, slot: number | null): void {
    const known = pair !== null && resource !== null && pair.scatter.length > 1;
    absent("scatter", known, "The report has no points for this class and resource.");
    if (!known) return this.scatter.clear();
    const r = correlation(pair.pearson_r);
    setText(byId("scatter-note"), `Each point is a moment. r = ${r}.`);
    this.scatter.draw(`use of ${resource.name} by requests in progress; correlation ${r}`, () =>
      scatterOptions(pair, resource, slot),
    );
  }

  private drawDurations(report: Report, it: RequestClass, slot: number | null): void {
    const map = report.heatmap;
    const bounds = map ? buckets(map) : [];
    const counts = map ? sumBuckets(sumRows(map, (name) => name === it.name)) : [];
    const known = total(counts) > 0;
    absent("duration", known, "The report has no durations of this class.");
    const all = [it.p50_ms, it.p90_ms, it.p99_ms, it.max_ms].map(milliseconds);
    setText(byId("duration-note"), `p50 ${all[0]}, p90 ${all[1]}, p99 ${all[2]}, longest ${all[3]}.`);
    if (!known) return this.durations.clear();
    const says = `durations of ${plural(total(counts), "request")} of ${printable(it.name)}`;
    this.durations.draw(says, () => durationOptions(counts, bounds, slot));
  }
}

function absent(name: string, known: boolean, text: string): void {
  byId(`${name}-chart`).hidden = !known;
  const note = byId(`${name}-note`);
  if (!known) setText(note, text);
}

function shiftNote(at0: number, elsewhere: number): string {
  const times = elsewhere > 0.005 ? ` (${amount(at0 / elsewhere)} times as much)` : "";
  return at0 > elsewhere
    ? `${correlation(at0)} at zero, at most ${correlation(elsewhere)} elsewhere${times}: a spike at zero convinces.`
    : `${correlation(at0)} at zero, up to ${correlation(elsewhere)} elsewhere: it may be coincidence.`;
}

function shiftOptions(pair: Pair, slot: number | null) {
  const look = paint(slot);
  const found = spike(pair);
  return {
    data: [pair.shift_ms.map((ms) => ms / 1000), pair.shift_r] as uPlot.AlignedData,
    legend: { show: false },
    cursor: { show: false },
    padding: [16, 12, 0, 0] as uPlot.Padding,
    scales: { x: { time: false }, y: { range: around } },
    axes: [numberAxis("shift in seconds", 24), numberAxis("correlation", 40)],
    series: [{}, { stroke: look.line, width: 1.5, fill: look.colour, points: { show: false } }],
    hooks: {
      draw: [
        (plot: uPlot) => {
          const { left, top, width, height } = plot.bbox;
          const level = (value: number, colour: string, dash: number[]) => {
            const y = plot.valToPos(value, "y", true);
            rule(plot, [left, y], [left + width, y], colour, dash, 1);
          };
          level(0, cssColour("soft"), []);
          if (!found) return;
          level(found.elsewhere, cssColour("text"), [4, 4]);
          const x = plot.valToPos(0, "x", true);
          const y = Math.max(top, plot.valToPos(found.at0, "y", true));
          rule(plot, [x, y], [x, top + height], cssColour("text"), [2, 3], 1);
          write(plot, correlation(found.at0), x + 8 * uPlot.pxRatio, y + 4 * uPlot.pxRatio, "left", "middle");
        },
      ],
    },
  };
}

/** A range with zero in it and some air. */
function around(_: uPlot, least: number | null, most: number | null): uPlot.Range.MinMax {
  const [low, high] = [Math.min(0, least ?? 0), Math.max(0.1, most ?? 0)];
  const air = (high - low) * 0.06;
  return [low - air, high + air];
}

function scatterOptions(pair: Pair, resource: Resource, slot: number | null) {
  const look = paint(slot);
  const points = pair.scatter
    .flatMap(([x, y]) => (x === undefined || y === undefined ? [] : [[x, y] as const]))
    .sort((a, b) => a[0] - b[0]);
  const most = points.reduce((max, [, y]) => Math.max(max, y), resource.capacity);
  const widest = points.at(-1)?.[0] ?? 1;
  return {
    data: [points.map(([x]) => x), points.map(([, y]) => y)] as uPlot.AlignedData,
    legend: { show: false },
    cursor: { show: false },
    padding: [16, 12, 0, 0] as uPlot.Padding,
    scales: {
      x: { time: false, range: [-0.02 * (widest || 1), (widest || 1) * 1.04] as uPlot.Range.MinMax },
      y: { range: [0, most * 1.06] as uPlot.Range.MinMax },
    },
    axes: [numberAxis("requests in progress", 24), numberAxis(`${resource.unit} used`, 40)],
    series: [
      {},
      { paths: () => null, points: { show: true, size: 6, width: 1, stroke: look.line, fill: look.colour } },
    ],
    hooks: {
      draw: [
        (plot: uPlot) => {
          levelLine(plot, resource.capacity, "capacity");
          trend(plot, points);
        },
      ],
    },
  };
}

/** The line of least squares. */
function trend(plot: uPlot, points: readonly (readonly [number, number])[]): void {
  const n = points.length;
  const meanOf = (at: 0 | 1) => points.reduce((sum, point) => sum + point[at], 0) / n;
  const [x0, y0] = [meanOf(0), meanOf(1)];
  const spread = points.reduce((sum, [x]) => sum + (x - x0) ** 2, 0);
  if (spread <= 0) return;
  const slope = points.reduce((sum, [x, y]) => sum + (x - x0) * (y - y0), 0) / spread;
  const at = (x: number): [number, number] => [
    plot.valToPos(x, "x", true),
    plot.valToPos(Math.max(0, y0 + slope * (x - x0)), "y", true),
  ];
  const { left, top, width, height } = plot.bbox;
  plot.ctx.save();
  plot.ctx.beginPath();
  plot.ctx.rect(left, top, width, height);
  plot.ctx.clip();
  rule(plot, at(points[0]?.[0] ?? 0), at(points.at(-1)?.[0] ?? 0), cssColour("text"), [], 2);
  plot.ctx.restore();
}

function durationOptions(counts: readonly number[], bounds: readonly Bucket[], slot: number | null) {
  const look = paint(slot);
  const first = Math.max(0, counts.findIndex((value) => value > 0) - 1);
  const last = Math.min(counts.length, counts.findLastIndex((value) => value > 0) + 2);
  const at = counts.map((_, index) => index).slice(first, last);
  const bars = uPlot.paths.bars?.({ size: [0.92, 60] });
  const edge = (index: number) => bounds[index]?.low ?? bounds.at(-1)?.high ?? null;
  return {
    data: [at, at.map((index) => counts[index] ?? 0)] as uPlot.AlignedData,
    legend: { show: false },
    cursor: { show: false },
    padding: [16, 16, 0, 0] as uPlot.Padding,
    scales: {
      x: { time: false, range: [first - 0.5, last - 0.5] as uPlot.Range.MinMax },
      y: { range: (_: uPlot, __: number, most: number) => [0, (most || 1) * 1.08] as uPlot.Range.MinMax },
    },
    axes: [
      ownAxis("duration", 24, {
        // Edges lie half way between bars.
        splits: () => at.filter((index) => (index - first) % 3 === 0).map((index) => index - 0.5),
        values: (_, splits) => splits.map((split) => milliseconds(edge(Math.round(split + 0.5)))),
      }),
      numberAxis("requests", 46),
    ],
    series: [
      {},
      {
        stroke: look.line,
        width: 1,
        fill: (plot: uPlot) => fill(plot.ctx, look, uPlot.pxRatio),
        points: { show: false },
        ...(bars && { paths: bars }),
      },
    ],
    hooks: { draw: [(plot: uPlot) => marks(plot, counts, bounds)] },
  };
}

/** Where the median and the slowest hundredth are. */
function marks(plot: uPlot, counts: readonly number[], bounds: readonly Bucket[]): void {
  const { top, height } = plot.bbox;
  for (const [q, label] of [
    [0.5, "p50"],
    [0.99, "p99"],
  ] as const) {
    const value = quantile(counts, bounds, q);
    if (value === null) continue;
    const index = bounds.findIndex((bucket) => value <= bucket.high);
    const bucket = bounds[index];
    if (!bucket) continue;
    const within = Math.log(Math.max(value, bucket.low) / bucket.low) / Math.log(bucket.high / bucket.low);
    const x = plot.valToPos(index - 0.5 + within, "x", true);
    rule(plot, [x, top], [x, top + height], cssColour("text"), [3, 3], 1.2);
    write(plot, label, x, top - 2 * uPlot.pxRatio, "center");
  }
}
