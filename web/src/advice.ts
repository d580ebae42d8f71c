// What to do about a class: a throttle that gives back what the resource lacks, and how much that is.
//
//   taken    = share x capacity
//   lacking  = use - 0.7 x capacity                           enough room for all others
//   kept     = 1 - lacking / taken, from 1/4 to 3/4;  1/2 where nothing lacks
//   rate     = kept x its requests per second, in two digits, rounded down
//   back     = taken x (1 - rate / its requests per second)
//
// A rate and no concurrency, since what a rate gives back is known: cost x rate. It is for ten minutes where the verdict
// is sure or likely, and for one where it is doubtful. Failure case: clients that repeat what waits too long come more
// often than before; and a throttle is one front-end's, so others need their own.

import { type Claim, DEGREES } from "./claim";
import type { Pair, RequestClass, Resource } from "./report";
import { useOfVerdicts } from "./use";

/** The use at which others hardly wait. */
const ROOMY = 0.7;
const KEPT = { least: 0.25, most: 0.75, usual: 0.5 };
/** Below that, requests per second say little. */
const RATE_MIN = 0.02;
const LONG_SECONDS = 600;
const SHORT_SECONDS = 60;

export type Advice =
  | { kind: "rate"; perSecond: number; back: number; seconds: number }
  | { kind: "experiment" }
  /** It is throttled already. */
  | { kind: "change" }
  /** An override on just these requests is not possible. */
  | { kind: "none" };

export function advice(it: RequestClass, pair: Pair, claim: Claim, resource: Resource): Advice {
  if (it.throttle) return { kind: "change" };
  if (it.pattern === null) return { kind: "none" };
  if (claim.doubt === "together") return { kind: "experiment" };
  const now = it.per_second;
  if (now === null || now < RATE_MIN || pair.share === null) return { kind: "none" };
  const taken = pair.share * resource.capacity;
  const lacking = (useOfVerdicts(resource) ?? 0) - ROOMY;
  const wanted = lacking > 0 && pair.share > 0 ? 1 - lacking / pair.share : KEPT.usual;
  const kept = Math.min(KEPT.most, Math.max(KEPT.least, wanted));
  const perSecond = twoDigits(now * kept);
  return {
    kind: "rate",
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
