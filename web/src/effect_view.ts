// What the last overrides changed: before and after, for the resource, the class and all others.

import uPlot from "uplot";
import { ChartBox, levelLine, numberAxis, rule, timeAxis, write } from "./chart";
import { byId, make, named, setText } from "./dom";
import { SETTLE_SECONDS, SIDE_SECONDS, type Side, Watch } from "./effect";
import { amount, clock, milliseconds, percent, printable } from "./format";
import { cssColour } from "./palette";
import type { Resource } from "./report";
import type { State } from "./state";
import { changed } from "./throttle_view";

/** Overrides that are watched at a time; the oldest goes. */
const WATCHES_MAX = 3;

export class EffectView {
  private watches: { watch: Watch; chart: ChartBox; box: HTMLElement }[] = [];

  /** Begins to watch an override that was carried out at a time of the report's clock. */
  begin(state: State, name: string, what: string, clicked: number): void {
    const { report } = state;
    if (!report) return;
    const watch = new Watch(name, state.resource()?.name ?? null, what, clicked, report);
    const picture = make("div", "chart");
    const close = make("button", "small", "Close");
    close.type = "button";
    close.addEventListener("click", () => this.drop(watch));
    const title = make("h3", "", named(name), ` · ${what}, ${clock(clicked)}`);
    const box = make(
      "article",
      "effect",
      make("div", "head", title, close),
      make("p", "soft note"),
      make("table"),
      picture,
    );
    byId("effects").prepend(box);
    this.watches.unshift({ watch, chart: new ChartBox(picture, 150), box });
    for (const old of this.watches.slice(WATCHES_MAX)) this.drop(old.watch);
    this.render(state);
  }

  /** Takes in a new report. */
  keep(state: State): void {
    if (!state.report) return;
    for (const { watch } of this.watches) watch.keep(state.report);
  }

  render(state: State): void {
    byId("effect").hidden = this.watches.length === 0;
    for (const { watch, chart, box } of this.watches) {
      const resource = state.report?.resources.find((it) => it.name === watch.resource) ?? null;
      const after = watch.after();
      const note = box.querySelector(".note");
      if (note) setText(note, explained(after));
      box.querySelector("table")?.replaceWith(table(watch, after, resource));
      if (resource)
        chart.draw(`use of ${printable(resource.name)} before and after`, () => options(watch, resource));
    }
  }

  private drop(watch: Watch): void {
    this.watches.find((it) => it.watch === watch)?.box.remove();
    this.watches = this.watches.filter((it) => it.watch !== watch);
    byId("effect").hidden = this.watches.length === 0;
  }
}

function explained(after: Side | null): string {
  const settle = `from ${SETTLE_SECONDS} s after the override on`;
  return after
    ? `Up to ${SIDE_SECONDS} s before the override, and the last ${SIDE_SECONDS} s ${settle}.`
    : `Its effect is shown ${settle}.`;
}

function table(watch: Watch, after: Side | null, resource: Resource | null): HTMLTableElement {
  const { before } = watch;
  const capacity = resource?.capacity ?? 1;
  const share = (side: Side | null) => (side?.used == null ? null : side.used / capacity);
  type Text = (value: number | null) => string;
  const lines: [string, number | null, number | null, Text][] = [];
  if (resource) lines.push([`${printable(resource.name)}, used`, share(before), share(after), percent]);
  for (const [whose, key] of [
    ["all others", "others"],
    ["this class", "own"],
  ] as const) {
    lines.push([`${whose}, p50`, before[key].p50, after?.[key].p50 ?? null, milliseconds]);
    lines.push([`${whose}, p99`, before[key].p99, after?.[key].p99 ?? null, milliseconds]);
    lines.push([`${whose}, requests/s`, before[key].perSecond, after?.[key].perSecond ?? null, amount]);
  }
  const head = make(
    "tr",
    "",
    make("td"),
    ...["before", "after", "change"].map((text) => make("th", "", text)),
  );
  const body = lines.map(([what, a, b, text]) => {
    const name = make("th", "word", what);
    name.scope = "row";
    return make(
      "tr",
      "",
      name,
      make("td", "", text(a)),
      make("td", "", text(b)),
      make("td", "", changed(a, b)),
    );
  });
  const made = make("table", "plain", make("thead", "", head), make("tbody", "", ...body));
  made.setAttribute("aria-label", "before and after the override");
  return made;
}

function options(watch: Watch, resource: Resource) {
  const { times, used } = watch.series();
  const most = used.reduce<number>((max, value) => Math.max(max, value ?? 0), resource.capacity);
  return {
    data: [times, used] as uPlot.AlignedData,
    legend: { show: false },
    cursor: { show: false },
    padding: [16, 12, 0, 0] as uPlot.Padding,
    scales: { x: { time: true }, y: { range: [0, most * 1.06] as uPlot.Range.MinMax } },
    axes: [timeAxis(), numberAxis(resource.unit)],
    series: [
      {},
      { stroke: cssColour("accent"), width: 1.5, fill: cssColour("accent-soft"), points: { show: false } },
    ],
    hooks: {
      draw: [
        (plot: uPlot) => {
          levelLine(plot, resource.capacity, "capacity");
          const { top, height } = plot.bbox;
          const x = plot.valToPos(watch.clicked, "x", true);
          rule(plot, [x, top], [x, top + height], cssColour("text"), [], 2);
          write(plot, "override", x, top - 2 * uPlot.pxRatio, "center");
        },
      ],
    },
  };
}
