// Colours and patterns. Classes keep theirs for as long as they are shown, whatever their rank.
//
// The colours differ with every common kind of colour blindness (Okabe and Ito, Color
// Universal Design, 2008); each comes with a pattern of its own, so that none of it hangs on colour
// alone. All colours stand in the style sheet, for light and dark.

/** Colours in the style sheet: --c0 and so on, with --c0-line for lines upon them. */
const COLOURS = 7;
const PATTERNS = ["plain", "rising", "dots", "falling", "grid", "level", "upright"] as const;
type Pattern = (typeof PATTERNS)[number];
/** Side of a pattern's tile in CSS pixels. */
const TILE = 8;

export interface Paint {
  colour: string;
  line: string;
  pattern: Pattern;
}

/** A colour of the style sheet as it is now. */
export function cssColour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** How a slot looks; null is everything that has none. */
export function paint(slot: number | null): Paint {
  if (slot === null) return { colour: cssColour("rest"), line: cssColour("rest-line"), pattern: "plain" };
  const at = slot % COLOURS;
  const pattern = PATTERNS[(slot + Math.floor(slot / COLOURS)) % PATTERNS.length] ?? "plain";
  return { colour: cssColour(`c${at}`), line: cssColour(`c${at}-line`), pattern };
}

/** The pattern to fill with, on a canvas with `ratio` device pixels in a CSS pixel. */
export function fill(context: CanvasRenderingContext2D, look: Paint, ratio: number): CanvasPattern | string {
  if (look.pattern === "plain") return look.colour;
  const side = Math.round(TILE * ratio);
  const tile = document.createElement("canvas");
  tile.width = tile.height = side;
  const pen = tile.getContext("2d");
  if (!pen) return look.colour;
  pen.fillStyle = look.colour;
  pen.fillRect(0, 0, side, side);
  pen.strokeStyle = pen.fillStyle = look.line;
  pen.lineWidth = 1.1 * ratio;
  drawTile(pen, look.pattern, side);
  return context.createPattern(tile, "repeat") ?? look.colour;
}

function drawTile(pen: CanvasRenderingContext2D, pattern: Exclude<Pattern, "plain">, side: number): void {
  const line = (x0: number, y0: number, x1: number, y1: number) => {
    pen.beginPath();
    pen.moveTo(x0, y0);
    pen.lineTo(x1, y1);
    pen.stroke();
  };
  const half = side / 2;
  switch (pattern) {
    case "rising":
      for (const shift of [-side, 0, side]) line(shift - half, side + half, shift + side + half, -half);
      return;
    case "falling":
      for (const shift of [-side, 0, side]) line(shift - half, -half, shift + side + half, side + half);
      return;
    case "level":
      return line(0, half, side, half);
    case "upright":
      return line(half, 0, half, side);
    case "grid":
      line(0, half, side, half);
      return line(half, 0, half, side);
    case "dots":
      pen.beginPath();
      pen.arc(half, half, side * 0.17, 0, 2 * Math.PI);
      return pen.fill();
  }
}

/** A small sample of a look, for legends; it says nothing to those who do not see it. */
export function swatch(slot: number | null): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  const ratio = window.devicePixelRatio || 1;
  canvas.className = "swatch";
  canvas.width = canvas.height = Math.round(16 * ratio);
  canvas.setAttribute("aria-hidden", "true");
  const pen = canvas.getContext("2d");
  if (pen) {
    const look = paint(slot);
    pen.fillStyle = fill(pen, look, ratio);
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.strokeStyle = look.line;
    pen.lineWidth = ratio;
    pen.strokeRect(ratio / 2, ratio / 2, canvas.width - ratio, canvas.height - ratio);
  }
  return canvas;
}

/** Colours from that of hardly a request to that of most, in so many steps, by lightness alone. */
export function heatScale(steps: number): string[] {
  const channels = (name: string) => {
    const hex = cssColour(name).slice(1);
    return [0, 2, 4].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
  };
  const [least, most] = [channels("heat-least"), channels("heat-most")];
  return Array.from({ length: steps }, (_, step) => {
    const share = steps > 1 ? step / (steps - 1) : 1;
    const mixed = least.map((value, channel) => Math.round(value + share * ((most[channel] ?? 0) - value)));
    return `rgb(${mixed.join(" ")})`;
  });
}
