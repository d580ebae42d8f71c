// Makes a picture of a page small: its 256 most frequent colours, and for each other one the nearest of these.
//
// Reads what the browser writes, 8 bits a channel without interlacing (PNG specification, third edition).

import { crc32, deflateSync, inflateSync } from "node:zlib";

const SIGNATURE = 8;
const COLOURS_MAX = 256;
/** Channels by type of colour. */
const CHANNELS: Record<number, number> = { 2: 3, 6: 4 };

interface Picture {
  width: number;
  height: number;
  /** Red, green and blue of each pixel as one number. */
  pixels: Uint32Array;
}

export function smaller(png: Buffer): Buffer {
  const picture = decoded(png);
  const { width, height, pixels } = picture;
  const palette = mostFrequent(pixels);
  const places = new Map(palette.map((colour, place) => [colour, place]));
  const rows = Buffer.alloc((width + 1) * height);
  pixels.forEach((colour, at) => {
    let place = places.get(colour);
    if (place === undefined) {
      place = nearest(palette, colour);
      places.set(colour, place);
    }
    rows[at + Math.floor(at / width) + 1] = place;
  });
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 3, 0, 0, 0], 8);
  const colours = Buffer.from(palette.flatMap((it) => [it >> 16, (it >> 8) & 255, it & 255]));
  const parts = [
    chunk("IHDR", head),
    chunk("PLTE", colours),
    chunk("IDAT", deflateSync(rows, { level: 9, memLevel: 9 })),
    chunk("IEND", Buffer.alloc(0)),
  ];
  return Buffer.concat([png.subarray(0, SIGNATURE), ...parts]);
}

function decoded(png: Buffer): Picture {
  const data: Buffer[] = [];
  let [width, height, channels] = [0, 0, 3];
  for (let at = SIGNATURE; at < png.length;) {
    const length = png.readUInt32BE(at);
    const type = png.toString("latin1", at + 4, at + 8);
    const body = png.subarray(at + 8, at + 8 + length);
    if (type === "IHDR") {
      [width, height] = [body.readUInt32BE(0), body.readUInt32BE(4)];
      channels = CHANNELS[body[9] ?? 0] ?? 3;
    }
    if (type === "IDAT") data.push(body);
    at += length + 12;
  }
  const bytes = unfiltered(inflateSync(Buffer.concat(data)), width * channels, height, channels);
  const pixels = new Uint32Array(width * height);
  for (let at = 0; at < pixels.length; at += 1) pixels[at] = bytes.readUIntBE(at * channels, 3);
  return { width, height, pixels };
}

/** Each row is stored as differences to what is left of it, above it, or both. */
function unfiltered(raw: Buffer, stride: number, height: number, channels: number): Buffer {
  const out = Buffer.alloc(stride * height);
  for (let y = 0; y < height; y += 1) {
    const filter = raw[y * (stride + 1)] ?? 0;
    for (let x = 0; x < stride; x += 1) {
      const at = y * stride + x;
      const left = x >= channels ? (out[at - channels] ?? 0) : 0;
      const above = y > 0 ? (out[at - stride] ?? 0) : 0;
      const corner = x >= channels && y > 0 ? (out[at - stride - channels] ?? 0) : 0;
      const guess = [0, left, above, (left + above) >> 1, paeth(left, above, corner)][filter] ?? 0;
      out[at] = ((raw[y * (stride + 1) + 1 + x] ?? 0) + guess) & 255;
    }
  }
  return out;
}

function paeth(left: number, above: number, corner: number): number {
  const sum = left + above - corner;
  const [a, b, c] = [Math.abs(sum - left), Math.abs(sum - above), Math.abs(sum - corner)];
  return a <= b && a <= c ? left : b <= c ? above : corner;
}

function mostFrequent(pixels: Uint32Array): number[] {
  const often = new Map<number, number>();
  for (const colour of pixels) often.set(colour, (often.get(colour) ?? 0) + 1);
  const all = [...often].sort((one, other) => other[1] - one[1] || one[0] - other[0]);
  return all.slice(0, COLOURS_MAX).map(([colour]) => colour);
}

function nearest(palette: readonly number[], colour: number): number {
  let [best, least] = [0, Infinity];
  palette.forEach((it, place) => {
    const distance = [16, 8, 0].reduce((sum, shift) => {
      return sum + (((it >> shift) & 255) - ((colour >> shift) & 255)) ** 2;
    }, 0);
    if (distance < least) [best, least] = [place, distance];
  });
  return best;
}

function chunk(type: string, body: Buffer): Buffer {
  const named = Buffer.concat([Buffer.from(type, "latin1"), body]);
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(body.length);
  sum.writeUInt32BE(crc32(named));
  return Buffer.concat([length, named, sum]);
}
