// Durations of requests over time as a heat map, and the span of time that is looked at.
//
// The span is dragged on the map, or its ends are, which are two handles: arrows move a handle by a step, with
// Shift by five, Home and End to the ends, Escape gives the span up.

import uPlot from "uplot";
import { ChartBox, dragging, ownAxis, shadeOutside, timeAxis } from "./chart";
import { byId, choice, make, setText } from "./dom";
import {
  type Bucket,
  type Span,
  buckets,
  rowCount,
  rowInside,
  rowTime,
  snapped,
  sumRows,
  total,
  wholeSpan,
} from "./durations";
import { amount, clock, milliseconds, plural, printable, seconds } from "./format";
import { heatScale } from "./palette";
import type { Heatmap } from "./report";
import type { Actions, HeatOf, State } from "./state";

const LEVELS = 24;
const FAST_STEPS = 5;

export class HeatView {
  private readonly chart = new ChartBox(byId("heat-chart"), 240, "group");
  private readonly handles = { from: make("div", "handle from"), to: make("div", "handle to") };
  private map: Heatmap | null = null;
  private span: Span | null = null;
  private shownChoice = "";
  private focused: HTMLElement | null = null;

  constructor(private readonly actions: Actions) {
    for (const [edge, handle] of Object.entries(this.handles)) {
      handle.tabIndex = 0;
      handle.setAttribute("role", "slider");
      handle.setAttribute("aria-label", edge === "from" ? "begin of the span" : "end of the span");
      handle.addEventListener("keydown", (event) => this.key(event, edge as keyof Span));
      handle.addEventListener("pointerdown", (event) => this.pull(event, edge as keyof Span));
      // Or the chart would begin a span of its own.
      handle.addEventListener("mousedown", (event) => event.stopPropagation());
    }
    byId("span-clear").addEventListener("click", () => this.actions.selectSpan(null));
  }

  render(state: State): void {
    this.map = state.report?.heatmap ?? null;
    this.span = state.span;
    const map = this.map;
    const known = map !== null && rowCount(map) > 1 && buckets(map).length > 0;
    byId("heat").hidden = !known;
    if (!known) return this.chart.clear();
    this.choices(state);
    const only = state.heatOf === "selected" ? state.selected : null;
    const rows = sumRows(map, (name) => only === null || name === only);
    const says = `durations over time of ${only === null ? "all classes" : printable(only)}`;
    // The handles go with the old chart and come back with the new one, a moment later.
    this.focused = Object.values(this.handles).find((handle) => handle === document.activeElement) ?? null;
    this.chart.draw(says, () => this.options(map, rows));
    this.describe(map, rows);
  }

  private choices(state: State): void {
    const name = state.selected === null ? "" : printable(state.selected);
    const shown = JSON.stringify([name, state.heatOf]);
    if (shown === this.shownChoice) return;
    this.shownChoice = shown;
    const box = byId("heat-of");
    const hadFocus = box.contains(document.activeElement);
    const options = [
      { value: "all", label: "all classes" },
      { value: "selected", label: make("bdi", "name", name) },
    ];
    const change = (value: string) => this.actions.showHeatOf(value as HeatOf);
    box.replaceChildren(...choice("heat-of", options, state.heatOf, change));
    if (hadFocus) box.querySelector<HTMLInputElement>("input:checked")?.focus();
  }

  private describe(map: Heatmap, rows: readonly number[][]): void {
    const span = this.span;
    byId("span-clear").hidden = span === null;
    const step = map.step_seconds;
    for (const [edge, handle] of Object.entries(this.handles)) {
      const whole = wholeSpan(map);
      const at = (span ?? whole)[edge as keyof Span];
      handle.setAttribute("aria-valuemin", whole.from.toFixed(3));
      handle.setAttribute("aria-valuemax", whole.to.toFixed(3));
      handle.setAttribute("aria-valuenow", at.toFixed(3));
      handle.setAttribute("aria-valuetext", clock(at, step));
    }
    if (!span) {
      return setText(
        byId("span-note"),
        "Drag over a span of time, or move its two ends with the arrow keys.",
      );
    }
    const inside = rows
      .filter((_, row) => rowInside(map, row, span))
      .reduce((sum, row) => sum + total(row), 0);
    const length = seconds(span.to - span.from);
    const what = `${clock(span.from, step)} to ${clock(span.to, step)} (${length}): ${plural(inside, "request")}`;
    setText(byId("span-note"), what);
  }

  private key(event: KeyboardEvent, edge: keyof Span): void {
    const map = this.map;
    if (!map || event.altKey || event.ctrlKey || event.metaKey) return;
    const whole = wholeSpan(map);
    const span = { ...(this.span ?? whole) };
    const step = map.step_seconds * (event.shiftKey ? FAST_STEPS : 1);
    const other = edge === "from" ? span.to - map.step_seconds : span.from + map.step_seconds;
    switch (event.key) {
      case "ArrowLeft":
      case "ArrowDown":
        span[edge] -= step;
        break;
      case "ArrowRight":
      case "ArrowUp":
        span[edge] += step;
        break;
      case "Home":
        span[edge] = edge === "from" ? whole.from : other;
        break;
      case "End":
        span[edge] = edge === "from" ? other : whole.to;
        break;
      case "Escape":
        event.preventDefault();
        return this.actions.selectSpan(null);
      default:
        return;
    }
    event.preventDefault();
    span[edge] = edge === "from" ? Math.min(span.from, other) : Math.max(span.to, other);
    this.actions.selectSpan(snapped(map, span));
  }

  /** Moves an end with the pointer until its button goes up. */
  private pull(pressed: PointerEvent, edge: keyof Span): void {
    pressed.preventDefault();
    this.handles[edge].focus();
    const move = (event: PointerEvent) => {
      const map = this.map;
      const box = this.handles[edge].parentElement?.getBoundingClientRect();
      if (!map || !box || box.width <= 0) return;
      const whole = wholeSpan(map);
      const time = whole.from + ((event.clientX - box.left) / box.width) * (whole.to - whole.from);
      const span = { ...(this.span ?? whole) };
      const step = map.step_seconds;
      span[edge] = edge === "from" ? Math.min(time, span.to - step) : Math.max(time, span.from + step);
      const wanted = snapped(map, span);
      if (wanted?.from !== this.span?.from || wanted?.to !== this.span?.to) this.actions.selectSpan(wanted);
    };
    const done = new AbortController();
    window.addEventListener("pointermove", move, { signal: done.signal });
    for (const end of ["pointerup", "pointercancel"]) {
      window.addEventListener(end, () => done.abort(), { signal: done.signal });
    }
  }

  /** Puts the handles where the span's ends are; they live in the chart, which is made anew. */
  private place(plot: uPlot, map: Heatmap): void {
    const span = this.span ?? wholeSpan(map);
    for (const [edge, handle] of Object.entries(this.handles)) {
      const x = plot.valToPos(span[edge as keyof Span], "x");
      handle.style.left = `${Math.max(0, Math.min(plot.over.clientWidth, x))}px`;
      if (handle.parentElement !== plot.over) plot.over.append(handle);
    }
    this.focused?.focus({ preventScroll: true });
    this.focused = null;
  }

  private options(map: Heatmap, rows: readonly number[][]) {
    const bounds = buckets(map);
    const used = bounds.filter((_, index) => rows.some((row) => (row[index] ?? 0) > 0));
    const low = used[0]?.low ?? bounds[0]?.low ?? 1;
    const high = used.at(-1)?.high ?? bounds.at(-1)?.high ?? 1000;
    const whole = wholeSpan(map);
    const drag = dragging((span) => this.actions.selectSpan(span && snapped(map, span)));
    return {
      ...drag,
      data: [rows.map((_, row) => rowTime(map, row)), rows.map(() => null)] as uPlot.AlignedData,
      legend: { show: false },
      padding: [8, 28, 0, 0] as uPlot.Padding,
      scales: {
        x: { time: true, range: [whole.from, whole.to] as uPlot.Range.MinMax },
        y: { distr: 3 as const, range: [low, high] as uPlot.Range.MinMax },
      },
      axes: [
        timeAxis(),
        ownAxis("duration", 54, {
          splits: () => decades(low, high),
          values: (_, splits) => splits.map((split) => milliseconds(split)),
        }),
      ],
      series: [{}, { points: { show: false } }],
      hooks: {
        ...drag.hooks,
        ready: [(plot: uPlot) => this.place(plot, map)],
        setSize: [(plot: uPlot) => this.place(plot, map)],
        drawAxes: [(plot: uPlot) => cells(plot, map, rows, bounds)],
        draw: [
          (plot: uPlot) => {
            shadeOutside(plot, this.span);
          },
        ],
      },
    };
  }
}

function decades(low: number, high: number): number[] {
  const found: number[] = [];
  for (let power = Math.ceil(Math.log10(low) - 1e-9); 10 ** power <= high * (1 + 1e-9); power += 1)
    found.push(10 ** power);
  return found;
}

/** Paints the cells, and a scale of what the colours mean. */
function cells(plot: uPlot, map: Heatmap, rows: readonly number[][], bounds: readonly Bucket[]): void {
  const scale = heatScale(LEVELS);
  const most = rows.reduce((max, row) => row.reduce((a, b) => Math.max(a, b), max), 0);
  const pen = plot.ctx;
  const x = (time: number) => Math.round(plot.valToPos(time, "x", true));
  const y = (ms: number) => Math.round(plot.valToPos(ms, "y", true));
  pen.save();
  rows.forEach((row, index) => {
    const [from, to] = [x(rowTime(map, index)), x(rowTime(map, index + 1))];
    row.forEach((value, at) => {
      const bucket = bounds[at];
      if (!bucket || value <= 0) return;
      const level = most > 1 ? Math.log(value) / Math.log(most) : 1;
      pen.fillStyle = scale[Math.round(level * (LEVELS - 1))] ?? "";
      const top = y(bucket.high);
      pen.fillRect(from, top, Math.max(1, to - from), Math.max(1, y(bucket.low) - top));
    });
  });
  pen.restore();
  const box = byId("heat-scale");
  const steps = [...box.querySelectorAll("i")];
  if (steps.length !== LEVELS) box.replaceChildren(...scale.map(() => make("i")));
  box.querySelectorAll<HTMLElement>("i").forEach((step, index) => {
    step.style.background = scale[index] ?? "";
  });
  setText(byId("heat-most"), `${amount(most)} requests`);
}
