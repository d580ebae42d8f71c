// Numbers and names as people read them.

import type { Maybe } from "./report";

export const UNKNOWN = "–";

/** About three digits, without an exponent. */
export function amount(value: Maybe): string {
  if (value === null) return UNKNOWN;
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  if (size >= 100) return String(Math.round(value));
  if (size >= 10) return String(Math.round(value * 10) / 10);
  return String(Math.round(value * 100) / 100);
}

export function milliseconds(value: Maybe): string {
  if (value === null) return UNKNOWN;
  if (value < 0.1) return `${Math.round(value * 1000)} µs`;
  if (value < 10) return `${Math.round(value * 10) / 10} ms`;
  if (value < 1000) return `${Math.round(value)} ms`;
  return seconds(value / 1000);
}

/** `2.1 to 9 ms`: the unit once if both have the same. */
export function range(low: number, high: number): string {
  const [from, to] = [milliseconds(low), milliseconds(high)];
  if (from === to) return from;
  const [least, unit, ...more] = from.split(" ");
  const same = more.length === 0 && to.split(" ").length === 2 && to.endsWith(` ${unit}`);
  return `${same ? least : from} to ${to}`;
}

export function seconds(value: Maybe): string {
  if (value === null) return UNKNOWN;
  if (value < 100) return `${Math.round(value * 10) / 10} s`;
  const whole = Math.round(value);
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor(whole / 60) % 60;
  const [first, rest] = hours ? [`${hours} h`, [minutes, "min"]] : [`${minutes} min`, [whole % 60, "s"]];
  return rest[0] ? `${first} ${rest.join(" ")}` : first;
}

export function percent(value: Maybe): string {
  if (value === null) return UNKNOWN;
  const hundredths = value * 100;
  return `${Math.abs(hundredths) < 9.95 ? Math.round(hundredths * 10) / 10 : Math.round(hundredths)} %`;
}

/** A correlation: always two digits, with its sign. */
export function correlation(value: Maybe): string {
  return value === null ? UNKNOWN : value.toFixed(2).replace("-", "−");
}

/** A probability: how tiny a tiny one is matters to no decision. */
export function probability(value: Maybe): string {
  if (value === null) return UNKNOWN;
  if (value < 0.0001) return "<0.0001";
  return value < 0.01 ? value.toFixed(4) : value.toFixed(2);
}

/** The time of day of Unix seconds, as fine as `step` needs; with the date in windows over a day. */
export function clock(unix: number, step = 1, window = 0): string {
  const date = new Date(unix * 1000);
  const two = (value: number) => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} `;
  const minutes = `${two(date.getHours())}:${two(date.getMinutes())}`;
  const fine = step < 60 ? `:${two(date.getSeconds())}` : "";
  const finer = step < 1 ? `.${Math.floor(date.getMilliseconds() / 100)}` : "";
  return (window > 86_400 ? day : "") + minutes + fine + finer;
}

/**
 * A name that came from clients, fit to be shown: control characters, and those that turn the
 * direction of writing, would let one name look like another.
 */
export function printable(name: string): string {
  return name.replace(
    /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    "\ufffd",
  );
}

/** `2 classes`, `1 class`. */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${amount(value)} ${value === 1 ? one : many}`;
}
