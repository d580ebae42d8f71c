// Overrides on the selected class: what is typed, a look at what would be sent, the answer.

import { rateNow } from "./advice";
import type { Client } from "./client";
import { byId, make, named, setText } from "./dom";
import { amount, clock, milliseconds, percent, plural, printable } from "./format";
import { type Typed, sentences, typedOverride } from "./override";
import type { Report, RequestClass, Throttle } from "./report";
import type { State } from "./state";

/** An override that was carried out. */
export interface Done {
  name: string;
  what: string;
}

interface Asked {
  title: string;
  name: string;
  said: string[];
  path: string;
  body: object;
  what: string;
  /** Whether its effect is to be shown. */
  watched: boolean;
  /** Where the answer stands. */
  answer: "act-answer" | "override-answer";
}

const FIELDS = ["concurrency", "rate", "bandwidth", "queue"] as const;

export class ThrottleView {
  private readonly dialog = byId<HTMLDialogElement>("confirm");
  private readonly form = byId<HTMLFormElement>("throttle-form");
  private it: RequestClass | null = null;
  private report: Report | null = null;
  private shown: string | null = null;
  private asked: Asked | null = null;

  constructor(
    private readonly client: Client,
    private readonly onDone: (done: Done) => void,
  ) {
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.it) this.throttle(this.it, this.typed(), "override-answer");
    });
    byId("release").addEventListener(
      "click",
      () => this.it?.throttle && this.release(this.it.name, this.it.throttle.class, "override-answer"),
    );
    byId("experiment").addEventListener(
      "click",
      () => this.it && this.experiment(this.it.name, "override-answer"),
    );
    byId("send").addEventListener("click", () => void this.send());
    byId("cancel").addEventListener("click", () => this.dialog.close());
  }

  render(state: State): void {
    const it = state.class();
    this.report = state.report;
    byId("overrides").hidden = !state.live || !it;
    this.it = it;
    if (!it) return;
    if (this.shown !== it.name) {
      this.shown = it.name;
      this.say("override-answer", "", "");
      this.suggest(it);
    }
    byId<HTMLButtonElement>("release").disabled = !it.throttle;
    setText(byId("throttle-now"), it.throttle ? standing(it.throttle) : "It is not throttled.");
  }

  /** An experiment separates classes that the data cannot. */
  experiment(name: string, answer: Asked["answer"]): void {
    this.ask({
      answer,
      title: "Begin an experiment on this class?",
      name,
      said: [
        "For some seconds a random half of its requests is delayed by 300 ms; none is refused.",
        "The use of the resource then shows what they cost, whatever else runs at the same times.",
      ],
      path: "/api/culprits/experiment",
      body: { class: name },
      what: "the experiment has begun",
      watched: false,
    });
  }

  /** Half of what is in progress is a limit that does something and hurts little. */
  private suggest(it: RequestClass): void {
    for (const field of FIELDS) this.input(field).value = "";
    const half = Math.max(1, Math.round((it.in_progress ?? 2) / 2));
    this.input("concurrency").value = String(half);
    this.input("rate").placeholder = it.per_second === null ? "" : `now ${amount(it.per_second)}`;
    this.input("concurrency").placeholder = it.in_progress === null ? "" : `now ${amount(it.in_progress)}`;
  }

  private input(name: string): HTMLInputElement {
    return byId<HTMLInputElement>(`override-${name}`);
  }

  /** The throttle that the sentence at the top proposes. */
  propose(it: RequestClass, perSecond: number, length: number): void {
    const rate = { concurrency: "", rate: String(perSecond), bandwidth: "", queue: "" };
    this.throttle(it, { ...rate, duration: String(length) }, "act-answer");
  }

  /** Puts the focus where the selected class's throttle is changed. */
  change(): void {
    byId("overrides").scrollIntoView({ block: "center" });
    this.input("concurrency").focus({ preventScroll: true });
  }

  private typed(): Typed {
    return {
      concurrency: this.input("concurrency").value,
      rate: this.input("rate").value,
      bandwidth: this.input("bandwidth").value,
      queue: this.input("queue").value,
      duration: byId<HTMLSelectElement>("override-duration").value,
    };
  }

  private throttle(it: RequestClass, typed: Typed, answer: Asked["answer"]): void {
    if (it.pattern === null) {
      const why = "There is no override for just these requests: they have no method or path of their own.";
      return this.say(answer, "bad", why);
    }
    try {
      const override = typedOverride(it.pattern, typed);
      const said = sentences(override, this.report ? rateNow(this.report, it) : it.per_second);
      const what = said[0]?.replace(/\.$/, "").replace(/; .*/, "") ?? "throttled";
      this.ask({
        title: "Throttle this class?",
        name: it.name,
        said,
        path: "/api/throttle",
        body: override,
        what,
        watched: true,
        answer,
      });
    } catch (error) {
      this.say(answer, "bad", error instanceof Error ? error.message : String(error));
    }
  }

  release(name: string, pattern: string, answer: Asked["answer"]): void {
    this.ask({
      title: "Release this class?",
      name,
      said: ["All of its requests that wait go on at once."],
      path: "/api/release",
      body: { class: pattern },
      what: "released",
      watched: true,
      answer,
    });
  }

  private ask(asked: Asked): void {
    this.asked = asked;
    setText(byId("confirm-title"), asked.title);
    byId("confirm-name").replaceChildren(named(asked.name));
    byId("confirm-said").replaceChildren(...asked.said.map((text) => make("li", "", text)));
    // What is sent holds the name as it is; what is shown holds nothing that could deceive the eye.
    setText(byId("confirm-sent"), `POST ${asked.path}\n${printableJson(asked.body)}`);
    this.dialog.showModal();
  }

  private async send(): Promise<void> {
    const asked = this.asked;
    this.asked = null;
    this.dialog.close();
    if (!asked) return;
    this.say(asked.answer, "soft", "Sending…");
    try {
      const note = await this.client.override(asked.path, asked.body);
      this.say(asked.answer, "good", `Done: ${asked.what}.${note ? ` ${printable(note)}` : ""}`);
      if (asked.watched) this.onDone({ name: asked.name, what: asked.what });
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      this.say(asked.answer, "bad", `Not done: ${printable(why)}`);
    }
  }

  private say(where: Asked["answer"], tone: string, text: string): void {
    const box = byId(where);
    box.className = tone;
    setText(box, text);
  }
}

/** Every character that `printable` would replace is written as an escape. */
function printableJson(value: object): string {
  return JSON.stringify(value, null, 1)
    .split("\n")
    .map((line) =>
      [...line].map((letter) => (printable(letter) === letter ? letter : escaped(letter))).join(""),
    )
    .join("\n");
}

function escaped(letter: string): string {
  return `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

/** What a throttle does now, in one sentence. */
function standing(throttle: Throttle): string {
  const said = [`Now ${printable(throttle.limits)} (by ${printable(throttle.by)})`];
  if (throttle.since !== null) said.push(`since ${clock(throttle.since)}`);
  if (throttle.until !== null) said.push(`until ${clock(throttle.until)}`);
  const counts = [`${amount(throttle.in_flight)} in flight`, `${amount(throttle.waiting)} waiting`];
  if (throttle.held !== null) {
    const each =
      throttle.held > 0 && throttle.held_ms !== null
        ? `, ${milliseconds(throttle.held_ms / throttle.held)} each`
        : "";
    counts.push(`${plural(throttle.held, "request")} held so far${each}`);
  }
  return `${said.join(" ")}: ${counts.join(", ")}.`;
}

/** A change between two numbers in words. */
export function changed(before: number | null, after: number | null): string {
  if (before === null || after === null || before <= 0) return "";
  const change = after / before - 1;
  if (Math.abs(change) < 0.005) return "as before";
  return `${change > 0 ? "+" : "−"}${percent(Math.abs(change))}`;
}
