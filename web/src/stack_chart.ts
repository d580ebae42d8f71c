// The picture of a resource's use over time, stacked by class: of the last minute and of the last quarter of an hour.

import uPlot from "uplot";
import { levelLine, numberAxis, timeAxis } from "./chart";
import { amount } from "./format";
import { type Paint, fill, paint } from "./palette";
import type { Resource } from "./report";
import { type Layer, times } from "./stack";

export type SlotOf = (layer: Layer) => number | null;

/** Layers have been stacked already; `draw` comes upon them. */
export function stackOptions(
  resource: Resource,
  layers: readonly Layer[],
  slot: SlotOf,
  draw: (plot: uPlot) => void,
) {
  // From the top down: each area reaches to the ground, and those below are painted over it.
  const drawn = [...layers].reverse();
  const looks = drawn.map((layer) => paint(slot(layer)));
  const most = drawn[0]?.top.reduce<number>((max, value) => Math.max(max, value ?? 0), 0) ?? 0;
  return {
    data: [times(resource), ...drawn.map((layer) => layer.top)] as uPlot.AlignedData,
    legend: { show: false },
    padding: [14, 28, 0, 0] as uPlot.Padding,
    scales: {
      x: { time: true },
      y: { range: [0, Math.max(resource.capacity, most) * 1.06] as uPlot.Range.MinMax },
    },
    axes: [timeAxis(), numberAxis(resource.unit)],
    series: [{}, ...looks.map((look) => area(look))],
    hooks: {
      draw: [
        (plot: uPlot) => {
          draw(plot);
          levelLine(plot, resource.capacity, `capacity ${amount(resource.capacity)} ${resource.unit}`);
        },
      ],
    },
  };
}

function area(look: Paint): uPlot.Series {
  return {
    stroke: look.line,
    width: 1,
    fill: (plot) => fill(plot.ctx, look, uPlot.pxRatio),
    points: { show: false },
    spanGaps: false,
  };
}
