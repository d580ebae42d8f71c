// The verdict on a class in sentences that need no statistics, and the numbers behind it.

import { claim } from "./claim";
import { amountOf, called } from "./answer";
import { correlation, milliseconds, percent, plural, printable, probability, range } from "./format";
import type { Pair, Report, RequestClass, Resource } from "./report";
import { press } from "./use";

/** Shifts nearer than this belong to the spike itself. */
const SPIKE_MS = 2000;

export interface Spike {
  /** Correlation as it is, unshifted. */
  at0: number;
  /** Greatest correlation at shifts that cannot be cause and effect. */
  elsewhere: number;
}

/** The shift curve at zero and far from it; null if either is not known. */
export function spike(pair: Pair): Spike | null {
  let at0: { shift: number; r: number } | null = null;
  let elsewhere: number | null = null;
  pair.shift_ms.forEach((shift, index) => {
    const r = pair.shift_r[index] ?? null;
    if (r === null) return;
    if (!at0 || Math.abs(shift) < Math.abs(at0.shift)) at0 = { shift, r };
    if (Math.abs(shift) > SPIKE_MS) elsewhere = Math.max(elsewhere ?? -Infinity, r);
  });
  const found = at0 as { shift: number; r: number } | null;
  return found && elsewhere !== null ? { at0: found.r, elsewhere } : null;
}

/** What each word means, for tool tips and the details. */
export const MEANING: Record<NonNullable<Pair["confidence"]>, string> = {
  confirmed:
    "an experiment confirmed it: a random half of its requests was delayed for a moment, and the use followed",
  strong: "the data leave hardly any doubt",
  likely: "the data speak for it",
  ambiguous: "it runs at the same times as others, and the data cannot separate them",
  "from occupancy":
    "the resource was full, so only durations count: the class may be merely slow, and the work another’s",
};

/** What a request costs, in a few letters: a range where the report cannot say more. */
export function costShort(pair: Pair): string {
  if (pair.cost_ms === null) return milliseconds(null);
  if (pair.doubtful) return `≤ ${milliseconds(pair.cost_high_ms ?? pair.cost_ms)}`;
  if (pair.cost_bounded && pair.cost_low_ms !== null && pair.cost_high_ms !== null) {
    return range(pair.cost_low_ms, pair.cost_high_ms);
  }
  return milliseconds(pair.cost_ms);
}

/** The same in words, with what hides the rest. */
export function costWords(it: RequestClass, pair: Pair, resource: Resource): string | null {
  const { cost_ms: cost, cost_low_ms: low, cost_high_ms: high } = pair;
  const name = called(resource);
  if (cost === null) return null;
  if (pair.doubtful) {
    return `A request costs at most ${milliseconds(high ?? cost)}; ${name} is full, so how much less is hidden.`;
  }
  if (pair.cost_bounded) {
    const hidden =
      press(resource) === "full"
        ? `${name} is full, so more may hide`
        : it.throttle
          ? "it is throttled, so its requests come evenly, and more may hide"
          : "its requests run all the time, so more may hide";
    const most = high === null ? "" : ` (${milliseconds(high)} at most)`;
    return `A request costs at least ${milliseconds(low ?? cost)}; ${hidden}${most}.`;
  }
  const between = low !== null && high !== null && high > low ? `, ${range(low, high)}` : "";
  return `A request costs about ${milliseconds(cost)}${between}.`;
}

/** The verdict on a class and a resource, as sentences. */
export function story(it: RequestClass, pair: Pair | null, resource: Resource | null): string[] {
  if (!pair || !resource) return ["Nothing is known of this class and a resource."];
  const said: string[] = [];
  const found = claim(pair, resource);
  const cost = costWords(it, pair, resource);
  if (found.degree === 0) {
    const yet = resource.basis === "not yet" ? " so far, but too little was seen" : "";
    const share = pair.share === null ? "" : `; it is estimated to take ${amountOf(pair.share, resource)}`;
    said.push(`It does not stand out${yet}${share}.`);
    const least = pair.least_cost_ms;
    if (least !== null) said.push(`It would be named from ${milliseconds(least)} per request on.`);
    if (cost && pair.cost_bounded) said.push(cost);
  } else {
    const amount =
      pair.share === null ? `much of ${printable(resource.name)}` : amountOf(pair.share, resource);
    said.push(`It ${found.verb} ${amount}.${cost === null ? "" : ` ${cost}`}`);
    const meaning = found.doubt === "early" ? "but little was seen so far: it may be innocent" : null;
    if (pair.confidence !== null) {
      said.push(
        `The verdict is “${pair.confidence}”${meaning ? `, ${meaning}` : `: ${MEANING[pair.confidence]}`}.`,
      );
    }
  }
  if (it.throttle)
    said.push(`It is throttled: ${printable(it.throttle.limits)} (${printable(it.throttle.by)}).`);
  return said;
}

/** What the shift curve shows, for the evidence. */
export function shiftWords(pair: Pair): string | null {
  const found = spike(pair);
  if (!found || pair.confidence === null) return null;
  return `Its requests in progress and the use correlate with ${correlation(found.at0)} as it was, at most ${correlation(found.elsewhere)} when one of both is shifted in time by more than 2 s.`;
}

/** The numbers behind a verdict: term, value, meaning. */
export function evidence(pair: Pair): [string, string, string][] {
  const number = (value: number | null) => (value === null ? "–" : value.toFixed(1));
  const { cost_low_ms: low, cost_high_ms: high } = pair;
  return [
    [
      "cost, 95 % interval",
      low === null || high === null ? `± ${percent(pair.cost_error)}` : range(low, high),
      pair.cost_bounded ? "bounded by all use that was measured" : "by the error of the fit",
    ],
    [
      "lift",
      pair.lift === null ? "–" : `${number(pair.lift)}×`,
      "its cost per request against the mean of all requests",
    ],
    ["t", number(pair.t), "how well it predicts the use in blocks of time that it was not fitted to"],
    ["z", number(pair.z), "how far the true time stands out from all shifted ones"],
    ["rm", number(pair.rm), "the true time against the best of the shifted ones"],
    ["p", probability(pair.p), "probability of such a t by chance"],
    [
      "p adjusted",
      probability(pair.p_adjusted),
      "the same, for all classes and resources that were looked at",
    ],
    ["Pearson r", correlation(pair.pearson_r), "correlation of its requests with the use, as it is"],
    ["Pearson p", probability(pair.pearson_p), "probability of such an r by chance"],
    ["seen from", milliseconds(pair.least_cost_ms), "the least cost of a request that would have been named"],
  ];
}

/** How much the report is about. */
export function extent(report: Report): string {
  return `${plural(report.requests, "request")} in ${plural(report.classes.length, "class", "classes")}`;
}
