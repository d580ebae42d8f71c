// Paths of small charts: a box as many units wide as there are steps, and HEIGHT high.

import type { Maybe } from "../reader";

export const HEIGHT = 100;

const height = (value: number, most: number) => Math.round(10 * HEIGHT * (1 - value / (most || 1))) / 10;

/** From the ground up; a gap where nothing is known. */
export function area(values: readonly Maybe[], most: number): string {
  let path = "";
  values.forEach((value, at) => {
    if (value === null) return;
    const begins = (values[at - 1] ?? null) === null;
    const ends = (values[at + 1] ?? null) === null;
    path += `${begins ? `M${at} ${HEIGHT}V` : "V"}${height(value, most)}H${at + 1}${ends ? `V${HEIGHT}Z` : ""}`;
  });
  return path;
}

/** A line through the middle of each step; a gap where nothing is known. */
export function line(values: readonly Maybe[], most: number): string {
  let path = "";
  values.forEach((value, at) => {
    if (value === null) return;
    const begins = (values[at - 1] ?? null) === null;
    // A step between two gaps is a dash of its own.
    const alone = begins && (values[at + 1] ?? null) === null;
    const y = height(value, most);
    path += alone ? `M${at} ${y}H${at + 1}` : `${begins ? "M" : "L"}${at + 0.5} ${y}`;
  });
  return path;
}

/** What a node's strip has: its load as heights, and what else it was. */
export const STRIP_KINDS = ["load", "over", "out", "away", "unknown"] as const;
export type StripKind = (typeof STRIP_KINDS)[number];
export const STRIP_HEIGHT = 10;

/** Kind and height of a letter of a node's history; null: nothing is known of that time. */
function strip(letter: string): [StripKind, number] | null {
  if (letter >= "0" && letter <= "9") return ["load", Number(letter) + 1];
  switch (letter) {
    case "+":
      return ["over", STRIP_HEIGHT];
    case "x":
      return ["out", STRIP_HEIGHT];
    case "d":
    case "m":
      return ["away", 4];
    case ".":
      return ["unknown", 2];
    default:
      return null;
  }
}

/** A path for each kind: strokes that are beside each other and as high are one. */
export function stripPaths(load: string): Record<StripKind, string> {
  const paths: Record<StripKind, string> = { load: "", over: "", out: "", away: "", unknown: "" };
  for (let from = 0, to = 0; from < load.length; from = to) {
    for (to = from + 1; to < load.length && load[to] === load[from]; to += 1);
    const stroke = strip(load[from] ?? " ");
    if (stroke) paths[stroke[0]] += `M${from} ${STRIP_HEIGHT}v${-stroke[1]}H${to}V${STRIP_HEIGHT}Z`;
  }
  return paths;
}

/** The strip in words: what it was, for how much of the time. */
export function stripSentence(load: string, stepSeconds: number): string {
  const known = [...load].filter((letter) => letter !== " ").length;
  const steps = (letters: string) => [...load].filter((letter) => letters.includes(letter)).length;
  const parts: string[] = [];
  for (const [letters, words] of [
    ["x", "ejected"],
    ["+", "full, with 1.5 tasks or more for each CPU"],
    ["d", "drained"],
    ["m", "on a move"],
    [".", "with a load that was not known"],
  ] as const) {
    const many = steps(letters);
    if (many) parts.push(`${words} for ${Math.round((many * stepSeconds) / 6) / 10} min`);
  }
  const minutes = Math.round((known * stepSeconds) / 60);
  return `CPU use of the last ${minutes} min` + (parts.length ? `; ${parts.join("; ")}` : "");
}
