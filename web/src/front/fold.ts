// What is shown of a site: its charts or not, which nodes have rows, and which have cells.
//
// A node that is wrong has a row, whatever is folded. A site of many nodes has a cell for each, always at
// the same place; a click on one opens its row.

import type { Level, Site } from "./overview";
import { type Ranked, type RankedSite, isOverloaded, isWrong, worstNodesFirst } from "./rank";

/** A site of more nodes has cells. */
export const ROWS_ALWAYS = 12;
/** Of more sites, those that are calm are folded. */
const SITES_OPEN = 8;
/** Rows of nodes that are wrong; the others are cells. */
export const WRONG_ROWS = 12;
/** Rows that `show rows` adds at a time. */
export const MORE_ROWS = 100;

export interface Choice {
  /** Whether the operator wants it open; null: as it is by itself. */
  open: boolean | null;
  /** Rows that are wanted besides those of wrong nodes. */
  rows: number;
  /** Nodes whose row is wanted. */
  nodes: ReadonlySet<string>;
}

export const UNCHOSEN: Choice = { open: null, rows: 0, nodes: new Set() };

export interface Fold {
  isOpen: boolean;
  rows: Ranked[];
  cells: Ranked[];
  /** Nodes without a row. */
  rest: number;
}

function opensByItself(level: Level, nodes: number, sites: number): boolean {
  return level !== "good" || (nodes <= ROWS_ALWAYS && sites <= SITES_OPEN);
}

export function fold(ranked: RankedSite, sites: number, choice: Choice, filter: string): Fold {
  const fits = matching(ranked.site, ranked.nodes, filter);
  const many = ranked.nodes.length > ROWS_ALWAYS;
  const isOpen = choice.open ?? opensByItself(ranked.level, ranked.nodes.length, sites);
  const isNarrowed = fits.length < ranked.nodes.length;
  const sorted = worstNodesFirst(fits);
  const wanted = Math.max(isNarrowed ? MORE_ROWS : 0, choice.rows, many || !isOpen ? 0 : ROWS_ALWAYS);
  const rows = sorted.filter((it, at) => {
    const wrong = isWrong(it) && at < WRONG_ROWS;
    return wrong || at < wanted || choice.nodes.has(it.node.name);
  });
  return { isOpen, rows, cells: many || !isOpen ? fits : [], rest: fits.length - rows.length };
}

/** The nodes that a filter leaves: all if it fits the site itself. */
export function matching(site: Site, nodes: readonly Ranked[], filter: string): Ranked[] {
  const wanted = filter.trim().toLowerCase();
  if (wanted === "" || site.name.toLowerCase().includes(wanted)) return [...nodes];
  return nodes.filter(({ node, level }) => {
    const isState =
      node.state.toLowerCase().startsWith(wanted) || (wanted === "wrong" && WRONG_LEVELS.has(level));
    return isState || node.name.toLowerCase().includes(wanted);
  });
}

const WRONG_LEVELS: ReadonlySet<string> = new Set(["bad", "warn"]);

/** How full a node is, as its cell shows it: a tenth of its CPUs, or that it is over or not known. */
export function fullness({ node }: Ranked): string {
  if (isOverloaded(node)) return "over";
  return node.cpu === null ? "unknown" : `l${Math.max(0, Math.min(9, Math.floor(node.cpu * 10)))}`;
}

/** The letter of a cell: what is wrong with it must not hang on its colour. */
export function sign(ranked: Ranked): string {
  const { state } = ranked.node;
  if (state === "ejected") return "✕";
  if (ranked.level === "bad" || ranked.level === "warn") return "!";
  if (ranked.level === "note") return state.includes("maint") ? "m" : state.includes("drain") ? "d" : "→";
  return "";
}
