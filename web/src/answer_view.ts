// The top of the page: the sentence, the button that acts on it, what else stands out, and what is throttled.

import type { Advice } from "./advice";
import { type Answer, amountOf, answer, rate } from "./answer";
import { type Accused, accusedOf, claim } from "./claim";
import { byId, make, named, setText } from "./dom";
import { amount, printable, seconds } from "./format";
import type { Report, RequestClass, Resource, Throttle } from "./report";
import type { Actions, State } from "./state";
import { MEANING } from "./verdict";

/** Lines below the sentence. */
const ALSO_MAX = 4;

export interface Handlers {
  throttle(it: RequestClass, perSecond: number, seconds: number): void;
  experiment(name: string): void;
  change(it: RequestClass): void;
  release(name: string, pattern: string): void;
  evidence(name: string): void;
}

interface Also {
  accused: Accused;
  resource: Resource;
}

export class AnswerView {
  private shownSentence = "";
  private shownAlso = "";
  private answer: Answer | null = null;

  constructor(
    private readonly actions: Actions,
    private readonly handlers: Handlers,
  ) {
    byId("act").addEventListener("click", () => this.act());
    byId("why").addEventListener("click", () => {
      const name = this.answer?.subject?.it.name;
      if (name !== undefined) this.handlers.evidence(name);
    });
  }

  render(state: State): void {
    const { report } = state;
    const resource = state.resource();
    if (!report) return;
    const found = resource ? answer(report, resource) : null;
    this.answer = found;
    byId("answer").className = `answer ${found?.form ?? "none"}`;
    this.sentence(found);
    const label = found && state.live ? labelOf(found.act) : null;
    byId("act").hidden = label === null;
    if (label !== null) setText(byId("act"), label);
    // What is doubtful does not ask to be clicked.
    const invites = found?.act.kind === "experiment" || (found?.act.kind === "rate" && found.degree > 1);
    byId("act").classList.toggle("primary", invites);
    byId("why").hidden = !found?.subject;
    this.also(state, report, resource);
  }

  private sentence(found: Answer | null): void {
    const shown = JSON.stringify([found?.words, found?.subject?.claim]);
    if (shown === this.shownSentence) return;
    this.shownSentence = shown;
    const words = found?.words ?? ["No resource was looked at."];
    const parts = words.map((it) => (typeof it === "string" ? it : named(it.name, "subject")));
    byId("headline").replaceChildren(...parts);
    byId("badge").replaceChildren(...(found?.subject ? [badge(found.subject)] : []));
  }

  private act(): void {
    const { subject, act } = this.answer ?? {};
    if (!subject || !act) return;
    if (act.kind === "rate") this.handlers.throttle(subject.it, act.perSecond, act.seconds);
    if (act.kind === "experiment") this.handlers.experiment(subject.it.name);
    if (act.kind === "change") this.handlers.change(subject.it);
  }

  /** Made anew only when it says something else: a focus stays where it is. */
  private also(state: State, report: Report, resource: Resource | null): void {
    const list = resource ? alsoOf(report, resource) : [];
    const throttled = throttledOf(report);
    const shown = JSON.stringify([
      state.live,
      ...list.map((it) => [it.accused.it.name, it.accused.claim, sayAlso(it)]),
      ...throttled.map((it) => [it.it.name, sayThrottle(it.throttle)]),
    ]);
    if (shown === this.shownAlso) return;
    this.shownAlso = shown;
    const box = byId("also");
    const focused = [...box.querySelectorAll("button")].indexOf(document.activeElement as HTMLButtonElement);
    const items = list.map((it) => {
      const button = make("button", "link", named(it.accused.it.name));
      button.type = "button";
      button.addEventListener("click", () => {
        this.actions.chooseResource(it.resource.name);
        this.actions.select(it.accused.it.name);
      });
      return make("li", "", badge(it.accused), make("span", "said", button, sayAlso(it)));
    });
    box.replaceChildren(...items, ...throttled.map((it) => this.throttled(it, state.live)));
    box.hidden = items.length + throttled.length === 0;
    if (focused >= 0) box.querySelectorAll("button")[focused]?.focus();
  }

  private throttled({ it, throttle }: Throttled, live: boolean): HTMLElement {
    const text = make("span", "said", named(throttle.class), sayThrottle(throttle));
    const item = make("li", "", make("span", "verdict held", "throttled"), text);
    if (live) {
      const button = make("button", "small screen", "Release…");
      button.type = "button";
      button.setAttribute("aria-label", `Release ${printable(throttle.class)}…`);
      button.addEventListener("click", () => this.handlers.release(it.name, throttle.class));
      item.append(button);
    }
    return item;
  }
}

/** The verdict in a word or two, with its form. */
export function badge({ pair, claim: found }: Pick<Accused, "pair" | "claim">): HTMLElement {
  const word = make("span", `verdict ${found.form}`, found.badge);
  if (pair.confidence !== null) word.title = MEANING[pair.confidence];
  return word;
}

function labelOf(act: Advice): string | null {
  switch (act.kind) {
    case "rate":
      return `Throttle it to ${rate(act.perSecond)} for ${minutes(act.seconds)}…`;
    case "experiment":
      return "Find out by an experiment…";
    case "change":
      return "Change its throttle…";
    case "none":
      return null;
  }
}

function minutes(length: number): string {
  return length === 60 ? "1 min" : seconds(length);
}

/** What else stands out at this resource, and what does at the others. */
function alsoOf(report: Report, resource: Resource): Also[] {
  const [first, ...more] = accusedOf(report.classes, resource);
  const together = new Set(first?.claim.doubt === "together" ? first.pair.ambiguous_with : []);
  const here = more.filter(({ it }) => !together.has(it.name));
  const others = report.resources.filter((it) => it.name !== resource.name);
  const there = others.flatMap((it) => {
    const [accused] = accusedOf(report.classes, it);
    return accused ? [{ accused, resource: it }] : [];
  });
  return [...here.map((accused) => ({ accused, resource })), ...there].slice(0, ALSO_MAX);
}

function sayAlso({ accused: { it, pair }, resource }: Also): string {
  const { verb } = claim(pair, resource);
  const share = pair.share === null ? `much of ${printable(resource.name)}` : amountOf(pair.share, resource);
  return ` ${verb} ${share}${it.throttle ? ", throttled" : ""}`;
}

interface Throttled {
  it: RequestClass;
  throttle: Throttle;
}

/** One for each throttle, whichever classes it covers. */
function throttledOf(report: Report): Throttled[] {
  const found = new Map<string, Throttled>();
  for (const it of report.classes) {
    if (it.throttle && !found.has(it.throttle.class))
      found.set(it.throttle.class, { it, throttle: it.throttle });
  }
  return [...found.values()].slice(0, ALSO_MAX);
}

function sayThrottle(throttle: Throttle): string {
  const waiting = throttle.waiting ? `, ${amount(throttle.waiting)} waiting` : "";
  return `: ${printable(throttle.limits)}, by ${printable(throttle.by)}${waiting}`;
}
