// What all charts share: axes, sizes, texts upon them, the selected span of time.

import uPlot from "uplot";
import { amount, clock } from "./format";
import { cssColour } from "./palette";
import type { Span } from "./durations";

export const FONT = '12px system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const NARROWEST = 200;

/** A chart in its box: made anew for other data or colours, as wide as the box. */
export class ChartBox {
  private plot: uPlot | null = null;

  /** A `group` holds things that can be focused; an `img` is nothing but a picture. */
  constructor(
    readonly box: HTMLElement,
    private readonly height: number,
    private readonly role: "img" | "group" = "img",
  ) {
    new ResizeObserver(() => this.fit()).observe(box);
  }

  /** Draws anew; `says` is the chart in words. */
  draw(
    says: string,
    make: () => Omit<uPlot.Options, "width" | "height"> & { data: uPlot.AlignedData },
  ): void {
    this.box.setAttribute("role", this.role);
    this.box.setAttribute("aria-label", says);
    const { data, ...options } = make();
    this.plot?.destroy();
    this.plot = new uPlot({ ...options, width: this.width(), height: this.height }, data, this.box);
  }

  clear(): void {
    this.plot?.destroy();
    this.plot = null;
  }

  private width(): number {
    return Math.max(NARROWEST, Math.floor(this.box.clientWidth));
  }

  private fit(): void {
    if (this.plot && this.plot.width !== this.width()) {
      this.plot.setSize({ width: this.width(), height: this.height });
    }
  }
}

function axis(label: string | null, size: number, more: uPlot.Axis): uPlot.Axis {
  return {
    stroke: cssColour("soft"),
    font: FONT,
    labelFont: FONT,
    ...(label !== null && { label, labelSize: 18, labelGap: 2 }),
    size,
    gap: 4,
    grid: { stroke: cssColour("grid"), width: 1 },
    ticks: { stroke: cssColour("line"), width: 1, size: 4 },
    ...more,
  };
}

/** An axis of times of the day. */
export function timeAxis(): uPlot.Axis {
  return axis(null, 24, {
    space: 90,
    values: (plot, splits) => {
      const window = (plot.scales.x?.max ?? 0) - (plot.scales.x?.min ?? 0);
      const step = (splits[1] ?? 0) - (splits[0] ?? 0) || 1;
      return splits.map((time) => clock(time, step, window));
    },
  });
}

/** An axis of numbers. */
export function numberAxis(label: string, size = 46): uPlot.Axis {
  return axis(label, size, { values: (_, splits) => splits.map((value) => amount(value).replace("-", "−")) });
}

/** An axis that writes its values with a function of one's own. */
export function ownAxis(label: string | null, size: number, more: uPlot.Axis): uPlot.Axis {
  return axis(label, size, more);
}

/** Writes upon a chart, at device pixels, with the ground's colour around it. */
export function write(
  plot: uPlot,
  text: string,
  x: number,
  y: number,
  align: CanvasTextAlign,
  baseline: CanvasTextBaseline = "bottom",
): void {
  const pen = plot.ctx;
  pen.save();
  pen.font = FONT.replace("12px", `${12 * uPlot.pxRatio}px`);
  pen.textAlign = align;
  pen.textBaseline = baseline;
  pen.lineJoin = "round";
  pen.lineWidth = 4 * uPlot.pxRatio;
  pen.strokeStyle = cssColour("card");
  pen.strokeText(text, x, y);
  pen.fillStyle = cssColour("text");
  pen.fillText(text, x, y);
  pen.restore();
}

/** A straight line across a chart, at device pixels. */
export function rule(
  plot: uPlot,
  from: [number, number],
  to: [number, number],
  colour: string,
  dash: number[] = [],
  width = 1.5,
): void {
  const pen = plot.ctx;
  pen.save();
  pen.strokeStyle = colour;
  pen.lineWidth = width * uPlot.pxRatio;
  pen.setLineDash(dash.map((length) => length * uPlot.pxRatio));
  pen.beginPath();
  pen.moveTo(...from);
  pen.lineTo(...to);
  pen.stroke();
  pen.restore();
}

/** A level line with its name, such as the capacity. */
export function levelLine(plot: uPlot, level: number, text: string): void {
  const { left, width } = plot.bbox;
  const y = plot.valToPos(level, "y", true);
  rule(plot, [left, y], [left + width, y], cssColour("text"), [6, 4]);
  write(plot, text, left + width - 6 * uPlot.pxRatio, y - 3 * uPlot.pxRatio, "right");
}

/** Dims what is outside of a span of time. */
export function shadeOutside(plot: uPlot, span: Span | null): void {
  if (!span) return;
  const { left, top, width, height } = plot.bbox;
  const clip = (x: number) => Math.max(left, Math.min(left + width, x));
  const from = clip(plot.valToPos(span.from, "x", true));
  const to = clip(plot.valToPos(span.to, "x", true));
  const pen = plot.ctx;
  pen.save();
  pen.fillStyle = cssColour("veil");
  pen.fillRect(left, top, from - left, height);
  pen.fillRect(to, top, left + width - to, height);
  pen.restore();
  for (const x of [from, to]) rule(plot, [x, top], [x, top + height], cssColour("accent"), [], 2);
}

/** Lets a span of time be dragged on a chart. */
export function dragging(
  onSpan: (span: Span | null) => void,
): Pick<uPlot.Options, "cursor" | "select" | "hooks"> {
  return {
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false, dist: 4 } },
    hooks: {
      setSelect: [
        (plot) => {
          const { left, width } = plot.select;
          if (width <= 0) return;
          const span = { from: plot.posToVal(left, "x"), to: plot.posToVal(left + width, "x") };
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          onSpan(span);
        },
      ],
    },
  };
}
