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
  kind: string;
  level: EventLevel;
  site: string | null;
  node: string | null;
  /** The operator that wanted it. */
  by: string | null;
  text: string;
}

export interface Events {
  newest: number;
  oldest: number;
  events: Event[];
}

const events: Reader<Events> = object<Events>({
  newest: count,
  oldest: count,
  events: list(
    object<Event>({
      number: count,
      at_seconds: count,
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

/** Newest first, each number once. A process that has begun anew counts from the start: then what was is over. */
export function merged(kept: readonly Event[], read: Events): Event[] {
  const newest = kept[0]?.number ?? 0;
  const fresh = read.events.filter((it) => it.number > newest || newest > read.newest).reverse();
  return (newest > read.newest ? fresh : [...fresh, ...kept]).slice(0, KEPT_MAX);
}

/** Where to ask from: null if nothing is new. */
export function askAfter(kept: readonly Event[], newest: number): number | null {
  const known = kept[0]?.number ?? 0;
  if (newest === known) return null;
  return newest > known ? known : 0;
}

export interface EventFilter {
  kind: string;
  level: string;
  site: string;
}

export const EVERYTHING: EventFilter = { kind: "", level: "", site: "" };

export function filtered(all: readonly Event[], { kind, level, site }: EventFilter): Event[] {
  return all.filter(
    (it) =>
      (kind === "" || it.kind === kind) &&
      (level === "" || it.level === level) &&
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
  /** Place from the left, 0 to 1. */
  place: number;
  event: Event;
}

const WEIGHT: Record<EventLevel, number> = { bad: 3, warn: 2, good: 1, note: 0 };

/** The ticks of a site's charts, the latest last; of many the worst. */
export function ticks(all: readonly Event[], site: string, from: number, to: number): Tick[] {
  const own = all.filter(
    (it) => (it.site === site || it.site === null) && it.at_seconds >= from && it.at_seconds <= to,
  );
  const worst = [...own].sort((a, b) => WEIGHT[b.level] - WEIGHT[a.level] || b.number - a.number);
  const shown = worst.slice(0, TICKS_MAX).sort((a, b) => a.number - b.number);
  return shown.map((event) => ({ place: (event.at_seconds - from) / (to - from), event }));
}
