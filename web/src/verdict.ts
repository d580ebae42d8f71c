// The verdict in sentences: what a person should know without reading a chart.

import { correlation, milliseconds, percent, plural, printable, probability } from "./format";
import { type Pair, type Report, type RequestClass, type Resource, mean, pairOf } from "./report";

/** Shifts nearer than this belong to the spike itself. */
const SPIKE_MS = 2000;
/** Classes that the headline names. */
const NAMED_MAX = 3;

/** Mean use of the resource as a share of its capacity. */
export function useShare(resource: Resource): number | null {
  const used = mean(resource.used);
  return used === null ? null : used / resource.capacity;
}

/** Who loads the resource, in one sentence. */
export function headline(report: Report, resource: Resource): string {
  const use = useShare(resource);
  const first =
    use === null ? `${resource.name}: use is not known.` : `${resource.name} is ${percent(use)} used.`;
  const accused = report.classes
    .map((it) => ({ it, pair: pairOf(it, resource.name) }))
    .filter(({ pair }) => pair?.confidence != null)
    .sort((a, b) => (b.pair?.share ?? 0) - (a.pair?.share ?? 0));
  const sure = accused.filter(({ pair }) => !isDoubtful(pair?.confidence ?? null));
  const doubtful = accused.filter(({ pair }) => isDoubtful(pair?.confidence ?? null));
  const list = (some: typeof accused, most: string) => {
    const named = some
      .slice(0, NAMED_MAX)
      .map(
        ({ it, pair }) =>
          `${printable(it.name)} ${most}${percent(pair?.share ?? null)} (${pair?.confidence ?? ""})`,
      );
    return named.join(", ") + (some.length > NAMED_MAX ? `, and ${some.length - NAMED_MAX} more` : "");
  };
  const who = sure.length === 1 ? "One class stands out" : `${sure.length} classes stand out`;
  const told = sure.length ? `${who}: ${list(sure, "")}.` : "No class stands out.";
  const early = isEarly(resource) ? " Not known yet: too little was seen so far." : "";
  const maybe = doubtful.length
    ? ` It is full, and these may fill it or be merely slow: ${list(doubtful, "up to ")}.`
    : "";
  return `${first} ${told}${maybe}${early}`;
}

/** Whether too little was seen of a resource: who is not accused may still be, and who is may be innocent. */
export function isEarly(resource: Resource): boolean {
  return resource.basis === "not yet";
}

/** Whether a verdict rests on durations alone, which cannot tell slow from dear. */
export function isDoubtful(confidence: Pair["confidence"]): boolean {
  return confidence === "from occupancy";
}

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
  confirmed: "confirmed by an experiment: a random half of its requests was delayed for a moment",
  strong: "the data leave hardly any doubt",
  likely: "the data speak for it",
  ambiguous: "the data cannot tell it from others that run at the same times",
  "from occupancy":
    "the resource was full, so only durations tell: it may be merely slow, and the work somebody else’s",
};

/** The verdict on a class and a resource, as sentences. */
export function story(it: RequestClass, pair: Pair | null, resource: Resource | null): string[] {
  if (!pair || !resource) return ["Nothing is known of this class and a resource."];
  const said: string[] = [];
  const use = `${percent(pair.share)} of ${resource.name}`;
  if (pair.confidence === null) {
    said.push(`It is not accused${isEarly(resource) ? " yet" : ""}: it is estimated to use ${use}.`);
  } else {
    const error = pair.cost_error === null ? "" : ` ± ${percent(pair.cost_error)}`;
    const cost = pair.cost_ms === null ? "" : `, ${milliseconds(pair.cost_ms)}${error} in each request`;
    said.push(
      isDoubtful(pair.confidence) ? `It uses at most ${use}${cost}.` : `It uses about ${use}${cost}.`,
    );
    said.push(`The verdict is “${pair.confidence}”: ${MEANING[pair.confidence]}.`);
    if (isEarly(resource)) said.push("Too little was seen so far: it may be innocent.");
  }
  const found = spike(pair);
  if (found && pair.confidence !== null) {
    const compared = `${correlation(found.at0)} as it was, at most ${correlation(found.elsewhere)} when one of both is shifted in time by more than 2 s`;
    said.push(`Its requests in progress and the use correlate with ${compared}.`);
  }
  if (it.throttle) said.push(`It is throttled: ${it.throttle.limits} (${it.throttle.by}).`);
  return said;
}

/** The numbers behind a verdict: term, value, meaning. */
export function evidence(pair: Pair): [string, string, string][] {
  const number = (value: number | null) => (value === null ? "–" : value.toFixed(1));
  return [
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
  ];
}

/** How much the report is about. */
export function extent(report: Report): string {
  return `${plural(report.requests, "request")} in ${plural(report.classes.length, "class", "classes")}`;
}
