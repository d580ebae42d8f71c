// What a hand has changed: a site's requests, errors and 99th percentile, before and after.
//
//   before   the 10 whole seconds before the answer to the order
//   after    the 10 whole seconds after it, fewer while they are not over
//
// Rates are means over the seconds that are known; the 99th percentile is that of the worst second.

import type { Maybe } from "../reader";
import type { History, SiteHistory } from "./history";

export const SIDE_S = 10;

export interface Side {
  /** Seconds that are known. */
  seconds: number;
  requests: Maybe;
  /** Refused and failed ones. */
  errors: Maybe;
  p99: Maybe;
}

export interface Effect {
  before: Side;
  after: Side;
  isOver: boolean;
}

/** `at`: when the order was answered, by the front-end's clock. */
export function effect(history: History, site: string, at: number): Effect | null {
  const own = history.sites.find((it) => it.name === site);
  if (!own) return null;
  const from = history.end_seconds - own.requests_per_second.length * history.step_seconds;
  // The second in which the order fell belongs to neither side.
  const place = Math.floor((at - from) / history.step_seconds);
  const before = side(own, place - SIDE_S, place);
  const after = side(own, place + 1, place + 1 + SIDE_S);
  return { before, after, isOver: history.end_seconds >= at + SIDE_S + history.step_seconds };
}

/** How many seconds must be asked for, `now` seconds into the front-end's clock. */
export function secondsToAsk(at: number, now: number): number {
  return Math.min(900, Math.ceil(now - at) + SIDE_S + 2);
}

function side(site: SiteHistory, from: number, to: number): Side {
  const cut = (values: readonly Maybe[]) => values.slice(Math.max(0, from), Math.max(0, to));
  const known = (values: readonly Maybe[]) => cut(values).filter((it): it is number => it !== null);
  const mean = (values: readonly number[]): Maybe =>
    values.length ? values.reduce((sum, it) => sum + it, 0) / values.length : null;
  const requests = known(site.requests_per_second);
  const refused = mean(known(site.refused_per_second));
  const failed = mean(known(site.errors_per_second));
  const slow = known(site.p99_seconds);
  return {
    seconds: requests.length,
    requests: mean(requests),
    errors: refused === null && failed === null ? null : (refused ?? 0) + (failed ?? 0),
    p99: slow.length ? Math.max(...slow) : null,
  };
}
