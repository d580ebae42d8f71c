// The last 15 minutes: asked for whole once, then the newest steps are put to it.
//
//   whole     /api/history?step=10&last=90
//   newest    /api/history?step=10&last=2, each ten seconds

import { type Maybe, type Reader, count, list, object, positive, record, some, text } from "../reader";
import { NODES_MAX, REASONS_MAX, SITES_MAX } from "./overview";

export const STEP_S = 10;
export const STEPS = 90;
export const NEWEST = 2;

/** Lists of a site, one number a step. */
export const SERIES = [
  "requests_per_second",
  "refused_per_second",
  "errors_per_second",
  "p50_seconds",
  "p99_seconds",
  "queued",
] as const;
export type Series = Record<(typeof SERIES)[number], Maybe[]>;

export interface SiteHistory extends Series {
  name: string;
  /** What was refused or failed, step by step. */
  reasons: Record<string, Maybe[]>;
}

export interface NodeHistory {
  name: string;
  site: string;
  /** A letter a step; see docs/api.md. */
  load: string;
}

export interface History {
  step_seconds: number;
  steps: number;
  /** When the last step ended. */
  end_seconds: number;
  sites: SiteHistory[];
  nodes: NodeHistory[];
}

const series = list(some, 1000);
const reasons: Reader<Record<string, Maybe[]>> = record(series, REASONS_MAX);

const history = object<History>({
  step_seconds: positive,
  steps: count,
  end_seconds: count,
  sites: list(
    object<SiteHistory>({
      name: text,
      requests_per_second: series,
      refused_per_second: series,
      errors_per_second: series,
      p50_seconds: series,
      p99_seconds: series,
      queued: series,
      reasons,
    }),
    SITES_MAX,
  ),
  nodes: list(object<NodeHistory>({ name: text, site: text, load: text }), NODES_MAX),
});

export function parseHistory(value: unknown): History {
  return history(value, "history");
}

/** With lists of all steps, where those of a process that has not run for so long are shorter. */
export function whole(read: History): History {
  const nothing = { ...read, sites: [], nodes: [] };
  return append(nothing, read) ?? read;
}

/** Steps by which `newer` ends later; null if the two cannot be put together. */
function shift(kept: History, newer: History): number | null {
  const later = Math.round((newer.end_seconds - kept.end_seconds) / kept.step_seconds);
  const fits = newer.step_seconds === kept.step_seconds && later >= 0 && later <= newer.steps;
  return fits && newer.sites.length > 0 ? later : null;
}

function appendList(old: readonly Maybe[], newest: readonly Maybe[], later: number, steps: number): Maybe[] {
  const before = old.slice(0, Math.max(0, old.length - (newest.length - later)));
  const all = [...before, ...newest];
  return [...Array<Maybe>(Math.max(0, steps - all.length)).fill(null), ...all.slice(-steps)];
}

function appendText(old: string, newest: string, later: number, steps: number): string {
  const before = old.slice(0, Math.max(0, old.length - (newest.length - later)));
  return (before + newest).slice(-steps).padStart(steps, " ");
}

/** The kept history with the newest steps; null if there is a gap and all has to be asked for again. */
export function append(kept: History, newer: History): History | null {
  const later = shift(kept, newer);
  if (later === null) return null;
  const sites = new Map(kept.sites.map((it) => [it.name, it]));
  const nodes = new Map(kept.nodes.map((it) => [it.name, it]));
  return {
    ...kept,
    steps: STEPS,
    end_seconds: newer.end_seconds,
    sites: newer.sites.map((it) => {
      const old = sites.get(it.name);
      const joined: SiteHistory = { ...it, reasons: appendReasons(old?.reasons ?? {}, it, later) };
      for (const key of SERIES) joined[key] = appendList(old?.[key] ?? [], it[key], later, STEPS);
      return joined;
    }),
    nodes: newer.nodes.map((it) => {
      const old = nodes.get(it.name);
      return { ...it, load: appendText(old?.site === it.site ? old.load : "", it.load, later, STEPS) };
    }),
  };
}

function appendReasons(
  old: SiteHistory["reasons"],
  newer: SiteHistory,
  later: number,
): SiteHistory["reasons"] {
  const nothing = newer.requests_per_second.map(() => 0);
  const [before, after] = [new Map(Object.entries(old)), new Map(Object.entries(newer.reasons))];
  const joined = [...new Set([...before.keys(), ...after.keys()])].map((label): [string, Maybe[]] => [
    label,
    appendList(before.get(label) ?? [], after.get(label) ?? nothing, later, STEPS),
  ]);
  // What was not met in all the time that is shown is none any more.
  return Object.fromEntries(joined.filter(([, steps]) => sum(steps) > 0));
}

/** All steps that are known. */
export function sum(steps: readonly Maybe[]): number {
  return steps.reduce((all: number, step) => all + (step ?? 0), 0);
}

export function largest(...lists: readonly Maybe[][]): number {
  let most = 0;
  for (const list of lists) for (const value of list) if (value !== null && value > most) most = value;
  return most;
}

/** Two lists added, step by step; null where neither is known. */
export function added(one: readonly Maybe[], other: readonly Maybe[]): Maybe[] {
  return one.map((value, at) => {
    const second = other[at] ?? null;
    return value === null && second === null ? null : (value ?? 0) + (second ?? 0);
  });
}
