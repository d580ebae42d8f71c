// The one sentence at the top: which class to act on, what that gives, and how sure it is; or that there is none.
//
//   class    the first by rank (claim.ts) at the resource
//   amount   share x capacity, and share / use of what is used there, both over the verdicts' window; of classes that
//            nothing separates the sum
//   others   what the resource's use does to them (use.ts); that the class slows them is said of a full resource, of
//            which it takes a quarter of the use and more, and of no doubtful verdict
//   act      advice.ts
//
// Without a class it says how sure that is:
//
//   2  fairly sure   enough was seen, and the resource had room
//   1  not sure      the resource was full for half of the window and more: that hides causes
//   0  not known     too little was seen, or nothing was asked
//
// Failure case: the sentence is of one resource and of the verdicts' last 30 s; the lines below name others.

import { type Accused, DEGREES, type Degree, accusedOf } from "./claim";
import { type Advice, advice, rateNow } from "./advice";
import { amount, percent, printable, seconds } from "./format";
import { type Maybe, type Report, type Resource, pairOf } from "./report";
import { isRate, press, useOfLast, useOfVerdicts } from "./use";

/** A name stands apart from the text around it: it came from a client. */
export type Words = (string | { name: string })[];

export interface Answer {
  /** Of the verdict, or of how sure it is that there is none. */
  degree: Degree;
  form: "none" | "doubtful" | "probable" | "sure";
  words: Words;
  /** The class to act on; null: there is none. */
  subject: Accused | null;
  act: Advice;
}

/** Of a hundred culprits of the simulated suite so many are named within 30 s: docs/culprits.md. */
const NAMED_OF_HUNDRED = 95;
const HIDDEN = 0.5;
const RECENT_SECONDS = 10;
/** The part of the use from which on a class is what others wait for. */
const GREAT = 0.25;
/** Classes that are named together. */
const TOGETHER_MAX = 3;

export function answer(report: Report, resource: Resource): Answer {
  const [first] = accusedOf(report.classes, resource);
  return first ? accusing(first, report, resource) : acquitting(resource);
}

/** The sentence as a text. */
export function plain(words: Words): string {
  return words.map((it) => (typeof it === "string" ? it : printable(it.name))).join("");
}

/** `2.1 of db's 4 CPUs`, `45 % of db disk`. */
export function amountOf(share: number, resource: Resource): string {
  const owner = printable(resource.name).replace(/ cpu$/, "");
  if (resource.unit !== "cores") return `${percent(share)} of ${printable(resource.name)}`;
  const many = amount(resource.capacity);
  return `${amount(share * resource.capacity)} of ${owner}’s ${many} CPU${many === "1" ? "" : "s"}`;
}

/** A resource within a sentence that has named it before. */
export function called(resource: Resource): string {
  return resource.unit === "cores" ? "the CPU" : printable(resource.name);
}

function accusing(first: Accused, report: Report, resource: Resource): Answer {
  const { pair, claim } = first;
  const group = [first.it.name, ...(claim.doubt === "together" ? pair.ambiguous_with : [])];
  const words: Words = [];
  group.slice(0, TOGETHER_MAX).forEach((name, index) => words.push(...(index ? [" or "] : []), { name }));
  if (group.length > TOGETHER_MAX) words.push(` or ${group.length - TOGETHER_MAX} more`);
  if (group.length > 1) words.push(group.length === 2 ? ", or both," : ", or several of them,");
  const share = shareOf(group, report, resource);
  if (share === null) {
    words.push(` ${claim.verb} much of ${printable(resource.name)}`);
  } else {
    const use = useOfVerdicts(resource);
    const ofUse = use ? `, ${percent(Math.min(1, share / use))} of what is used there` : "";
    words.push(` ${claim.verb} ${amountOf(share, resource)}${ofUse}`);
  }
  words.push(doubtWords(first, resource), othersWords(first, resource));
  const act = advice(first.it, pair, claim, resource, rateNow(report, first.it));
  words.push(actWords(act, first, resource), ".");
  return { degree: claim.degree, form: claim.form, words, subject: first, act };
}

/** What classes that nothing separates take together: how it is divided among them says little. */
function shareOf(names: readonly string[], report: Report, resource: Resource): Maybe {
  const pairs = report.classes.filter((it) => names.includes(it.name)).map((it) => pairOf(it, resource.name));
  const shares = pairs.flatMap((pair) => (pair?.share == null ? [] : [pair.share]));
  return shares.length ? shares.reduce((sum, share) => sum + share, 0) : null;
}

function doubtWords({ claim }: Accused, resource: Resource): string {
  switch (claim.doubt) {
    case "durations":
      return `, or is merely slow: ${called(resource)} is full, so only durations count`;
    case "together":
      return "; they run at the same times";
    case "early":
      return claim.degree === DEGREES.doubtful
        ? ", but too little was seen so far"
        : ", by the little that was seen so far";
    case "error":
      return ", give or take as much again";
    case null:
      return "";
  }
}

function othersWords({ it, claim, pair }: Accused, resource: Resource): string {
  if (it.throttle) {
    // The verdicts' window still has what was before the throttle.
    return `; ${percent(useOfLast(resource, RECENT_SECONDS))} of ${called(resource)} were used in the last ${RECENT_SECONDS} s`;
  }
  if (claim.doubt === "durations") return "";
  const used = percent(useOfVerdicts(resource));
  switch (press(resource)) {
    case "full": {
      const great = (pair.share ?? 0) >= GREAT * (useOfVerdicts(resource) ?? 1);
      const slows = great && claim.degree >= DEGREES.probable;
      return slows ? ", and slows all others" : `; ${called(resource)} is full, so all wait`;
    }
    case "busy":
      return `; at ${used} others begin to wait`;
    case "room":
    case "idle":
      return `; at ${used} there is room, and others hardly wait`;
    case "unknown":
      return "";
  }
}

function actWords(act: Advice, { it, pair, claim }: Accused, resource: Resource): string {
  switch (act.kind) {
    case "rate": {
      const back =
        resource.unit === "cores" ? `${amount(act.back)} CPUs` : percent(act.back / resource.capacity);
      const sure =
        claim.degree === DEGREES.doubtful ? "at most " : claim.degree === DEGREES.sure ? "" : "about ";
      const bounded = pair.cost_bounded && claim.degree > DEGREES.doubtful ? "at least " : sure;
      return `; throttling it from ${rate(act.now)} to ${rate(act.perSecond)} would give back ${bounded}${back}`;
    }
    case "experiment":
      return "; an experiment of some 20 s decides which";
    case "change":
      return `; it is throttled already (${printable(it.throttle?.limits ?? "")})`;
    case "none":
      return it.pattern === null
        ? "; it has no method and path of its own, so nothing can throttle just it"
        : "; it comes too seldom for a throttle to help";
  }
}

export function rate(perSecond: number | null): string {
  return `${amount(perSecond)}/s`;
}

function acquitting(resource: Resource): Answer {
  const name = printable(resource.name);
  const used = percent(useOfVerdicts(resource));
  const of = (degree: Degree, form: Answer["form"], text: string): Answer => ({
    degree,
    form,
    words: [text],
    subject: null,
    act: { kind: "none" },
  });
  if (isRate(resource)) {
    return of(0, "none", `${name} has no capacity to share out, so no class is looked for there.`);
  }
  const length = resource.verdict_seconds;
  const pressed = press(resource);
  if (pressed === "idle") {
    return of(3, "sure", `No class loads ${name}: ${used} of it are used.`);
  }
  if (length === null || pressed === "unknown") {
    return of(0, "none", `It is not known which class loads ${name}: there is no verdict on it yet.`);
  }
  if (resource.basis === "not yet") {
    return of(
      0,
      "none",
      `It is not known yet which class loads ${name} (${used} used): ${seconds(length)} of data are too few; wait a minute.`,
    );
  }
  if ((resource.saturated_share ?? 0) >= HIDDEN) {
    return of(
      1,
      "doubtful",
      `No class stands out at ${name}, but that is not sure: it is full ${percent(resource.saturated_share)} of the time, which hides causes.`,
    );
  }
  return of(
    2,
    "probable",
    `No class stands out at ${name} (${used} used), and that is fairly sure: simulated, ${NAMED_OF_HUNDRED} of 100 culprits are named within 30 s. What uses it is many cheap requests together, or work that no request asked for.`,
  );
}
