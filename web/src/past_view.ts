// The last 15 minutes of the selected resource: the picture, and the same in a small table.

import uPlot from "uplot";
import { ChartBox, rule, write } from "./chart";
import { byId, make, named, setText } from "./dom";
import { amount, clock, printable, seconds } from "./format";
import { cssColour, swatch } from "./palette";
import { type PastRow, BEFORE_SECONDS, asResource, pastOf, pastRows } from "./past";
import { type Past, type RequestClass, type Resource, pairOf } from "./report";
import { type Layer, stack } from "./stack";
import { stackOptions } from "./stack_chart";
import type { Actions, State } from "./state";

const HEIGHT = 190;

interface Mark {
  time: number;
  text: string;
}

export class PastView {
  private readonly chart = new ChartBox(byId("past-chart"), HEIGHT);
  private shown = "";

  constructor(private readonly actions: Actions) {}

  render(state: State): void {
    const resource = state.resource();
    const past = state.report && resource ? pastOf(state.report, resource) : null;
    byId("past").hidden = !past;
    if (!past || !resource) return this.chart.clear();
    const drawn = asResource(past, resource);
    const slot = (layer: Layer) => (layer.kind === "class" ? state.slots.slot(layer.name) : null);
    const rows = pastRows(past);
    const marks = marksOf(state.class(), resource, drawn);
    const says = `${resource.name} over the last ${spanOf(past)}; ${rows.map((row) => inWords(row, resource)).join("; ")}`;
    this.chart.draw(says, () =>
      stackOptions(drawn, stack(drawn), slot, (plot) => marks.forEach((it, line) => mark(plot, it, line))),
    );
    const window = seconds(resource.verdict_seconds);
    setText(
      byId("past-note"),
      `The last ${spanOf(past)}; each step is the mean of ${window} before it, so a change shows within that time.`,
    );
    this.table(state, rows, resource);
  }

  private table(state: State, rows: readonly PastRow[], resource: Resource): void {
    const cells = rows.map((row) => [
      amount(row.before),
      amount(row.now),
      amount(row.most),
      row.mostAt === null ? amount(null) : clock(row.mostAt, 60),
    ]);
    const shown = JSON.stringify([
      resource.unit,
      state.selected,
      cssColour("card"),
      ...rows.map((row, at) => [row.name, state.slots.slot(row.name), cells[at]]),
    ]);
    if (shown === this.shown) return;
    this.shown = shown;
    const head = ["class", `${BEFORE_SECONDS / 60} min ago`, "now", "most", "at"].map((text, at) => {
      const cell = make("th", at ? "" : "word", text);
      cell.scope = "col";
      return cell;
    });
    const body = rows.map((row, at) => {
      const slot = state.slots.slot(row.name);
      const button = make("button", "entry", ...(slot === null ? [] : [swatch(slot)]), named(row.name));
      button.type = "button";
      button.setAttribute("aria-pressed", String(row.name === state.selected));
      button.addEventListener("click", () => this.actions.select(row.name));
      const name = make("th", "word", button);
      name.scope = "row";
      return make("tr", "", name, ...(cells[at] ?? []).map((text) => make("td", "", text)));
    });
    const table = byId("past-table");
    const focused = [...table.querySelectorAll("button")].indexOf(
      document.activeElement as HTMLButtonElement,
    );
    table.replaceChildren(make("thead", "", make("tr", "", ...head)), make("tbody", "", ...body));
    if (focused >= 0) table.querySelectorAll("button")[focused]?.focus();
  }
}

function spanOf(past: Past): string {
  return seconds(past.used.length * past.step_seconds);
}

function inWords(row: PastRow, resource: Resource): string {
  return `${printable(row.name)} now ${amount(row.now)}, at most ${amount(row.most)} ${resource.unit}`;
}

/** When the selected class was named and throttled, as far as that is in the picture. */
function marksOf(it: RequestClass | null, resource: Resource, drawn: Resource): Mark[] {
  const all = [
    { time: it ? (pairOf(it, resource.name)?.named_at ?? null) : null, text: "named" },
    { time: it?.throttle?.since ?? null, text: "throttled" },
  ];
  const end = drawn.t0 + (drawn.used.length - 1) * drawn.step_seconds;
  return all.flatMap(({ time, text }) =>
    time !== null && time >= drawn.t0 && time <= end ? [{ time, text }] : [],
  );
}

/** Each writes on a line of its own, as they may be near. */
function mark(plot: uPlot, { time, text }: Mark, line: number): void {
  const { top, height } = plot.bbox;
  const x = plot.valToPos(time, "x", true);
  rule(plot, [x, top], [x, top + height], cssColour("text"), [3, 3]);
  write(plot, text, x - 5 * uPlot.pxRatio, top + (30 + 15 * line) * uPlot.pxRatio, "right");
}
