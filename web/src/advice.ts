// What to do about a class: a throttle that gives back what the resource lacks, and how much that is.
//
//   taken    = share x capacity
//   lacking  = use - 0.7 x capacity                           enough room for all others
//   kept     = 1 - lacking / taken, from 1/4 to 3/4;  1/2 where nothing lacks
//   now      = its requests that ended per second, over the last 10 s, or 20, 30 or 60 until there are 20 of them
//   rate     = kept x now, in two digits, rounded down
//   back     = taken x (1 - rate / now)
//
// What it takes is a mean over the verdicts' window: of a class that has just begun it is too little, and so is what it
// gives back. Its rate is not, or the throttle would be many times as tight as it has to be.
//
// A rate and no concurrency, since what a rate gives back is known: cost x rate. It is for ten minutes where the verdict
// is sure or likely, and for one where it is doubtful. Failure case: clients that repeat what waits too long come more
// often than before; and a throttle is one front-end's, so others need their own.

import { type Claim, DEGREES } from "./claim";
import { rowCount, rowTime, total } from "./durations";
import type { Maybe, Pair, Report, RequestClass, Resource } from "./report";
import { useOfVerdicts } from "./use";

/** The use at which others hardly wait. */
const ROOMY = 0.7;
const KEPT = { least: 0.25, most: 0.75, usual: 0.5 };
/** Below that, requests per second say little. */
const RATE_MIN = 0.02;
const WINDOWS = [10, 20, 30, 60];
const REQUESTS_MIN = 20;
const LONG_SECONDS = 600;
const SHORT_SECONDS = 60;

export type Advice =
  | { kind: "rate"; now: number; perSecond: number; back: number; seconds: number }
  | { kind: "experiment" }
  /** It is throttled already. */
  | { kind: "change" }
  /** An override on just these requests is not possible. */
  | { kind: "none" };

/** Requests of the class that end per second now; over all that is shown where the report has no durations. */
export function rateNow(report: Report, it: RequestClass): Maybe {
  const map = report.heatmap;
  const counts = map?.cells.find((cell) => cell.class === it.name)?.counts;
  if (!map || !counts) return it.per_second;
  // The last row may not be over.
  const rows = Math.max(0, Math.min(rowCount(map), Math.floor((report.to - map.t0) / map.step_seconds)));
  const end = rowTime(map, rows);
  for (const seconds of WINDOWS) {
    const from = Math.max(0, rows - Math.round(seconds / map.step_seconds));
    const ended = counts.slice(from, rows).reduce((sum, row) => sum + total(row), 0);
    if (rows > from && ended >= REQUESTS_MIN) return ended / (end - rowTime(map, from));
  }
  return it.per_second;
}

export function advice(it: RequestClass, pair: Pair, claim: Claim, resource: Resource, now: Maybe): Advice {
  if (it.throttle) return { kind: "change" };
  if (it.pattern === null) return { kind: "none" };
  if (claim.doubt === "together") return { kind: "experiment" };
  if (now === null || now < RATE_MIN || pair.share === null) return { kind: "none" };
  const taken = pair.share * resource.capacity;
  const lacking = (useOfVerdicts(resource) ?? 0) - ROOMY;
  const wanted = lacking > 0 && pair.share > 0 ? 1 - lacking / pair.share : KEPT.usual;
  const kept = Math.min(KEPT.most, Math.max(KEPT.least, wanted));
  const perSecond = twoDigits(now * kept);
  return {
    kind: "rate",
    now,
    perSecond,
    back: taken * (1 - perSecond / now),
    seconds: claim.degree > DEGREES.doubtful ? LONG_SECONDS : SHORT_SECONDS,
  };
}

/** Rounded down: a rate that is meant to give something back is not above it. */
function twoDigits(value: number): number {
  const unit = 10 ** (Math.floor(Math.log10(value)) - 1);
  return Number((Math.floor(value / unit + 1e-9) * unit).toPrecision(2));
}
