// How sure a verdict is, and how it is said: one function of the report's numbers, for all of the page.
//
//   degree = by word, less by basis and error, 1 at least
//
//   by word    confirmed, strong 3;  likely 2;  ambiguous, from occupancy 1;  not accused 0
//   by basis   too little was seen of the resource ("not yet"): one less, unless an experiment confirmed it. Of the false
//              accusations of the simulated suite four of five fall into a front-end's first two minutes
//   by error   the interval of the cost reaches zero (an error of 100 % and more): 1
//   rank       the degree, then the share of the capacity
//
//   3  "takes"             filled badge
//   2  "probably takes"    outlined badge
//   1  "may take"          dashed badge that says "may be"; "may take up to" where only durations count
//
// Form and words say the same, so that neither hangs on colour. Failure case: a verdict is wrong where something unseen
// runs in step with the class; its numbers do not show that, and only an experiment does.

import type { Confidence, Pair, RequestClass, Resource } from "./report";

export const DEGREES = { none: 0, doubtful: 1, probable: 2, sure: 3 } as const;
export type Degree = (typeof DEGREES)[keyof typeof DEGREES];

/** Why a verdict is doubtful. */
export type Doubt = "together" | "durations" | "early" | "error";

export interface Claim {
  degree: Degree;
  /** How it looks: a class of the style sheet. */
  form: "none" | "doubtful" | "probable" | "sure";
  /** What it does to the resource, before the amount. */
  verb: string;
  /** The verdict in a word or two, for a badge. */
  badge: string;
  doubt: Doubt | null;
}

const BY_WORD: Record<Confidence, Degree> = {
  confirmed: 3,
  strong: 3,
  likely: 2,
  ambiguous: 1,
  "from occupancy": 1,
};

const FORMS = ["none", "doubtful", "probable", "sure"] as const;
const VERBS = ["does not stand out", "may take", "probably takes", "takes"] as const;

/** What the report says of a class and a resource. */
export function claim(pair: Pair | null, resource: Resource | null): Claim {
  const confidence = pair?.confidence ?? null;
  if (!pair || confidence === null) {
    return { degree: 0, form: "none", verb: VERBS[0], badge: "–", doubt: null };
  }
  const doubt = doubtOf(pair, confidence, resource);
  const degree = doubt === null ? BY_WORD[confidence] : doubt === "early" ? early(confidence) : 1;
  const verb = doubt === "durations" ? "may take up to" : VERBS[degree];
  const why = doubt === null ? "" : ` (${REASONS[doubt]})`;
  const badge = `${degree === DEGREES.doubtful ? "may be" : confidence}${why}`;
  return { degree, form: FORMS[degree], verb, badge, doubt };
}

function early(confidence: Confidence): Degree {
  return BY_WORD[confidence] === DEGREES.sure ? DEGREES.probable : DEGREES.doubtful;
}

const REASONS: Record<Doubt, string> = {
  together: "one of several",
  durations: "or merely slow",
  early: "little seen",
  error: "noisy",
};

function doubtOf(pair: Pair, confidence: Confidence, resource: Resource | null): Doubt | null {
  if (confidence === "confirmed") return null;
  if (confidence === "ambiguous") return "together";
  if (confidence === "from occupancy" || pair.doubtful) return "durations";
  if (resource?.basis === "not yet") return "early";
  return pair.cost_error !== null && pair.cost_error >= 1 ? "error" : null;
}

/** By degree, then by share: the first one is what a sentence is about. */
export function rank(pair: Pair | null, resource: Resource | null): number {
  return claim(pair, resource).degree + Math.min(0.999, Math.max(0, pair?.share ?? 0));
}

export interface Accused {
  it: RequestClass;
  pair: Pair;
  claim: Claim;
}

/** Classes that a verdict is about, those of the highest rank first. */
export function accusedOf(classes: readonly RequestClass[], resource: Resource): Accused[] {
  return classes
    .flatMap((it) => {
      const pair = it.pairs.find((one) => one.resource === resource.name);
      const found = claim(pair ?? null, resource);
      return pair && found.degree > 0 ? [{ it, pair, claim: found }] : [];
    })
    .sort((a, b) => rank(b.pair, resource) - rank(a.pair, resource) || (a.it.name < b.it.name ? -1 : 1));
}
