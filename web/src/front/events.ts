// What happened: events by number, asked for only when there are newer ones.

import { type Reader, count, list, maybe, object, oneOf, text } from "../reader";

const ASKED_MAX = 1000;
export const KEPT_MAX = 500;
/** Most ticks of a chart. */
export const TICKS_MAX = 40;

export const EVENT_LEVELS = ["good", "warn", "bad", "note"] as const;
export type EventLevel = (typeof EVENT_LEVELS)[number];

export interface Event {
  number: number;
  at_seconds: number;
  /** How often the same happened, of which this is the last time, and when it did first. */
  times: number;
  first_at_seconds: number;
  kind: string;
  level: EventLevel;
  site: string | null;
  node: string | null;
  /** The operator that wanted it. */
  by: string | null;
  text: string;
}

export interface Events {
  /** When the process began that counts the numbers. */
  since: number;
  newest: number;
  oldest: number;
  events: Event[];
}

const events: Reader<Events> = object<Events>({
  since: count,
  newest: count,
  oldest: count,
  events: list(
    object<Event>({
      number: count,
      at_seconds: count,
      times: count,
      first_at_seconds: count,
      kind: text,
      level: oneOf(EVENT_LEVELS),
      site: maybe(text),
      node: maybe(text),
      by: maybe(text),
      text,
    }),
    ASKED_MAX,
  ),
});

export function parseEvents(value: unknown): Events {
  return events(value, "events");
}

/** Newest first, each number once, and of what happened again only the last time. */
export function merged(kept: readonly Event[], read: Events): Event[] {
  const newest = kept[0]?.number ?? 0;
  const fresh = read.events.filter((it) => it.number > newest).reverse();
  const again = new Set(fresh.filter((it) => it.times > 1).map(first));
  return [...fresh, ...kept.filter((it) => !again.has(first(it)))].slice(0, KEPT_MAX);
}

/** What all times of the same have in common. */
function first({ kind, site, node, first_at_seconds }: Event): string {
  return JSON.stringify([kind, site, node, first_at_seconds]);
}

/** What comes of every start and of every node: it is shown where it is asked for. */
function isRoutine(event: Event): boolean {
  return event.kind === "rung" && event.level === "note";
}

/** Where to ask from: null if nothing is new. */
export function askAfter(kept: readonly Event[], newest: number): number | null {
  const known = kept[0]?.number ?? 0;
  if (newest === known) return null;
  return newest > known ? known : 0;
}

/** The level that stands for all, what is routine among them. */
export const EVERY_LEVEL = "all";

export interface EventFilter {
  kind: string;
  /** Empty: what is not routine. */
  level: string;
  site: string;
}

export const EVERYTHING: EventFilter = { kind: "", level: "", site: "" };

export function filtered(all: readonly Event[], { kind, level, site }: EventFilter): Event[] {
  return all.filter(
    (it) =>
      (kind === "" || it.kind === kind) &&
      (level === EVERY_LEVEL || (level === "" ? kind !== "" || !isRoutine(it) : it.level === level)) &&
      // What is of no site is of all.
      (site === "" || it.site === site || it.site === null),
  );
}

/** The values that the filters offer. */
export function choices(all: readonly Event[]): { kinds: string[]; sites: string[] } {
  const sorted = (values: Iterable<string>) => [...new Set(values)].sort();
  return {
    kinds: sorted(all.map((it) => it.kind)),
    sites: sorted(all.flatMap((it) => (it.site === null ? [] : [it.site]))),
  };
}

export interface Tick {
  /** When, seconds since 1970. */
  at: number;
  /** Place from the left, 0 to 1. */
  place: number;
  event: Event;
}

const WEIGHT: Record<EventLevel, number> = { bad: 3, warn: 2, good: 1, note: 0 };

/** The ticks of a site's charts, the latest last; of many the worst. */
export function ticks(all: readonly Event[], site: string, from: number, to: number): Tick[] {
  const own = all
    .filter((it) => (it.site === site || it.site === null) && !isRoutine(it))
    .flatMap((event) => {
      const { at_seconds, first_at_seconds, times } = event;
      return (times > 1 ? [first_at_seconds, at_seconds] : [at_seconds]).map((at) => ({ at, event }));
    })
    .filter(({ at }) => at >= from && at <= to);
  const worst = own.sort((a, b) => WEIGHT[b.event.level] - WEIGHT[a.event.level] || b.at - a.at);
  const shown = worst.slice(0, TICKS_MAX).sort((a, b) => a.at - b.at);
  return shown.map(({ at, event }) => ({ at, place: (at - from) / (to - from), event }));
}
