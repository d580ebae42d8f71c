// Moves of nodes between sites: how many nodes each site had over the last minutes, worked back from how
// many it has now.

import { type Maybe, boolean, count, list, maybe, object, some, text } from "../reader";
import { count as number, span, time } from "./words";

/** So far back the lines go. */
export const SPAN_S = 600;
export const SCALE_HEIGHT = 100;
/** The interface keeps so many. */
const MOVES_KEPT = 100;
const SITES_MAX = 512;

export interface Move {
  number: number;
  node: string;
  from: string;
  to: string;
  cause: string;
  pressure: Maybe;
  expected: Maybe;
  /** Seconds since it was made, or since it began. */
  ago: number;
  /** Of one that is under way. */
  state: string | null;
  failed: string | null;
}

export interface MovesSite {
  site: string;
  nodes: number;
  frozen: boolean;
  pressure: Maybe;
  verdict: string;
}

export interface Moves {
  dry_run: boolean;
  paused: boolean;
  trouble: string | null;
  sites: MovesSite[];
  /** The newest first. */
  all: Move[];
  /** So far back all moves are known. */
  known: number;
}

const move = {
  number: count,
  node: text,
  from: text,
  to: text,
  cause: text,
  pressure: some,
  expected: some,
};
type Under = Omit<Move, "ago" | "failed"> & { seconds: number };
type Over = Omit<Move, "ago" | "state"> & { at: string };

const answer = object<Omit<Moves, "all" | "known"> & { under_way: Under[]; moves: Over[] }>({
  dry_run: boolean,
  paused: boolean,
  trouble: maybe(text),
  sites: list(
    object<MovesSite>({ site: text, nodes: count, frozen: boolean, pressure: some, verdict: text }),
    SITES_MAX,
  ),
  under_way: list(object<Under>({ ...move, state: maybe(text), seconds: count }), SITES_MAX),
  moves: list(object<Over>({ ...move, at: text, failed: maybe(text) }), MOVES_KEPT),
});

/** `now` by the front-end's clock, in Unix seconds. */
export function parseMoves(value: unknown, now: number, uptime: number): Moves {
  const { under_way, moves, ...rest } = answer(value, "moves");
  const begun = under_way.map(({ seconds, ...it }): Move => ({ ...it, ago: seconds, failed: null }));
  const over = moves.map(({ at, ...it }): Move => {
    return { ...it, ago: Math.max(0, now - Date.parse(at) / 1000), state: null };
  });
  const all = [...begun, ...over].sort((one, other) => one.ago - other.ago);
  const oldest = moves.length >= MOVES_KEPT ? (all[all.length - 1]?.ago ?? SPAN_S) : SPAN_S;
  return { ...rest, all, known: Math.min(SPAN_S, uptime, oldest) };
}

/** What a move has added to a site's nodes. One that was not carried through has given back what it took. */
function added(it: Move, site: string): number {
  return it.failed !== null ? 0 : Number(it.to === site) - Number(it.from === site);
}

/** The site's nodes from now back: each count with how long ago it began. */
export function countsOf(site: MovesSite, moves: readonly Move[], known: number): [number, number][] {
  const counts: [number, number][] = [];
  let nodes = site.nodes;
  for (const it of moves) {
    if (it.ago >= known) break;
    if (added(it, site.site) === 0) continue;
    counts.push([it.ago, nodes]);
    nodes -= added(it, site.site);
  }
  return [...counts, [known, nodes]];
}

/** The line of the counts, in a box SPAN_S wide and SCALE_HEIGHT high. */
export function countsPath(counts: readonly [number, number][], most: number): string {
  const height = (nodes: number) => SCALE_HEIGHT * (1 - nodes / most);
  const steps = counts.map(([ago, nodes]) => `V${height(nodes)}H${SPAN_S - ago}`);
  return `M${SPAN_S} ${height(counts[0]?.[1] ?? 0)}${steps.join("")}`;
}

export interface MovesRow {
  site: MovesSite;
  own: Move[];
  counts: [number, number][];
}

/** The sites with the most moves, in the order of the configuration, and how many are left. */
export function movesRows(moves: Moves, most: number): { rows: MovesRow[]; rest: number; scale: number } {
  const recent = moves.all.filter((it) => it.ago < SPAN_S);
  const rows = moves.sites.map((site) => ({
    site,
    own: recent.filter((it) => it.to === site.site || it.from === site.site),
    counts: countsOf(site, moves.all, moves.known),
  }));
  const busiest = new Set([...rows].sort((a, b) => b.own.length - a.own.length).slice(0, most));
  return {
    rows: rows.filter((row) => busiest.has(row)),
    rest: rows.length - busiest.size,
    scale: Math.max(1, ...rows.flatMap((row) => row.counts.map(([, nodes]) => nodes))),
  };
}

export function moveSentence(it: Move): string {
  const load =
    it.expected === null || it.pressure === null
      ? ""
      : `: ${number(it.pressure)} tasks per CPU, ${number(it.expected)} expected`;
  const end =
    it.state !== null
      ? `; ${it.state} for ${time(it.ago)}`
      : it.failed !== null
        ? `; not carried through: ${it.failed}`
        : "";
  return `${it.node}: ${it.from} → ${it.to} (${it.cause}${load})${end}`;
}

export const agoSentence = (it: Move) => `${span(it.ago)} ago`;
