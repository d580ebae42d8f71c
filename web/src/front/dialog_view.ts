// Asks once before anything is done: what it will do, whom it concerns, and in whose name.

import { byId, make } from "../dom";
import type { Client } from "./client";
import { setClass, show, write } from "./elements";
import { type Hand, label, orderOf, saying, typedOperator } from "./hands";
import type { State } from "./state";

export interface Question {
  title: string;
  fields: HTMLElement[];
  /** What would be done by what is typed now; throws a RangeError with a sentence. */
  hand(): Hand;
}

export class DialogView {
  private readonly dialog = byId<HTMLDialogElement>("hand");
  private readonly yes = byId<HTMLButtonElement>("hand-yes");
  private readonly operator = byId<HTMLInputElement>("hand-operator");
  private question: Question | null = null;
  private opener: Element | null = null;

  constructor(
    private readonly client: Client,
    private readonly state: State,
    /** It was done; `note`: what the front-end says about it. */
    private readonly done: (hand: Hand, note: string | null) => void,
  ) {
    byId("hand-form").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.submit();
    });
    byId("hand-form").addEventListener("input", () => this.say());
    byId("hand-no").addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("close", () => {
      this.question = null;
      // The row may have been moved meanwhile.
      if (this.opener instanceof HTMLElement && this.opener.isConnected) this.opener.focus();
    });
  }

  ask(question: Question): void {
    this.question = question;
    this.opener = document.activeElement;
    write(byId("hand-title"), question.title);
    byId("hand-fields").replaceChildren(...question.fields);
    this.operator.value = this.client.operator;
    this.fail("");
    this.yes.disabled = false;
    this.say();
    this.dialog.showModal();
    const first = byId("hand-fields").querySelector<HTMLElement>("input:checked, input, select");
    (first ?? (this.operator.value ? this.yes : this.operator)).focus();
  }

  private say(): void {
    const { seen } = this.state;
    if (!this.question || !seen) return;
    let lines: string[] = [];
    let warning: string | null = null;
    try {
      const hand = this.question.hand();
      ({ lines, warning } = saying(hand, seen));
      write(this.yes, label(hand));
    } catch (error) {
      lines = [error instanceof Error ? error.message : String(error)];
      write(this.yes, this.question.title);
    }
    const says = lines.map((text) => {
      const line = make("p");
      write(line, text);
      return line;
    });
    byId("hand-says").replaceChildren(...says);
    show(byId("hand-warning"), warning !== null);
    write(byId("hand-warning"), warning ?? "");
    setClass(this.yes, warning === null ? "primary" : "primary danger");
  }

  private async submit(): Promise<void> {
    if (!this.question || this.yes.disabled) return;
    this.yes.disabled = true;
    try {
      const hand = this.question.hand();
      this.client.operator = typedOperator(this.operator.value);
      const answer = await this.client.order(orderOf(hand));
      this.dialog.close();
      this.done(hand, noteOf(answer));
    } catch (error) {
      this.fail(error instanceof Error ? error.message : String(error));
    }
    this.yes.disabled = false;
  }

  private fail(text: string): void {
    write(byId("hand-error"), text);
    show(byId("hand-error"), text !== "");
  }
}

/** What an answer to an order notes: a warning, or why it will not outlive a restart. */
function noteOf(answer: unknown): string | null {
  if (typeof answer !== "object" || answer === null) return null;
  const { warning, note } = answer as { warning?: unknown; note?: unknown };
  if (typeof warning === "string") return warning;
  return typeof note === "string" ? note : null;
}
