// What was done, and what it has changed: before and after, until it is closed.

import { byId, make } from "../dom";
import type { Client } from "./client";
import { type Effect, SIDE_S, type Side, effect, secondsToAsk } from "./effect";
import { button, show, write } from "./elements";
import { type Hand, label, siteOf, undo } from "./hands";
import { parseHistory } from "./history";
import type { Actions, State } from "./state";
import { count, time } from "./words";

const KEPT_MAX = 4;
const ROWS = [
  ["requests/s", (side: Side) => count(side.requests)],
  ["errors/s", (side: Side) => count(side.errors)],
  ["p99", (side: Side) => time(side.p99)],
] as const;

interface Kept {
  site: string;
  at: number;
  isOver: boolean;
  cells: { before: HTMLElement; after: HTMLElement }[];
  note: HTMLElement;
}

export class EffectsView {
  private kept: Kept[] = [];

  constructor(
    private readonly client: Client,
    private readonly state: State,
    private readonly actions: Actions,
  ) {}

  /** Begins to watch what an order does; `warning`: what the front-end notes about it. */
  begin(hand: Hand, warning: string | null): void {
    const { seen } = this.state;
    if (!seen) return;
    const site = siteOf(hand);
    const card = make("section", "effect");
    const title = make("h2");
    write(title, `Done: ${label(hand)}`);
    const head = make("div", "head", title);
    const back = undo(hand, seen);
    if (back) head.append(button("small", `Undo: ${label(back)}…`, () => this.actions.order(back)));
    head.append(button("small right", "Close", () => card.remove()));
    card.append(head);
    if (warning !== null) {
      const said = make("p", "warning");
      write(said, warning);
      card.append(said);
    }
    if (site !== null) this.kept.unshift(this.watch(card, site, seen.at_seconds));
    this.kept = this.kept.slice(0, KEPT_MAX);
    byId("effects").prepend(card);
    while (byId("effects").children.length > KEPT_MAX) byId("effects").lastElementChild?.remove();
  }

  private watch(card: HTMLElement, site: string, at: number): Kept {
    const note = make("p", "soft note");
    const head = [`${SIDE_S} s before`, `${SIDE_S} s after`].map((it) => {
      const cell = make("th", "", it);
      cell.scope = "col";
      return cell;
    });
    const body = make("tbody");
    const cells = ROWS.map(([name]) => {
      const [first, before, after] = [make("th", "", name), make("td"), make("td")];
      first.scope = "row";
      body.append(make("tr", "", first, before, after));
      return { before, after };
    });
    const caption = make("caption", "away");
    write(caption, `${site}, before and after`);
    card.append(
      make("table", "", caption, make("thead", "", make("tr", "", make("td"), ...head)), body),
      note,
    );
    return { site, at, isOver: false, cells, note };
  }

  /** Asks what is not over yet. */
  async update(): Promise<void> {
    const now = this.state.seen?.at_seconds ?? 0;
    for (const kept of this.kept.filter((it) => !it.isOver)) {
      const steps = secondsToAsk(kept.at, now);
      const path = `/api/history?step=1&last=${steps}&site=${encodeURIComponent(kept.site)}`;
      try {
        const seen = effect(parseHistory(await this.client.get(path)), kept.site, kept.at);
        if (seen) this.draw(kept, seen);
      } catch (error) {
        write(
          kept.note,
          `What it changes is not known: ${error instanceof Error ? error.message : String(error)}`,
        );
      }
    }
  }

  private draw(kept: Kept, { before, after, isOver }: Effect): void {
    kept.isOver = isOver;
    ROWS.forEach(([, value], at) => {
      const cells = kept.cells[at];
      if (!cells) return;
      write(cells.before, value(before));
      write(cells.after, value(after));
    });
    write(
      kept.note,
      isOver
        ? `Of ${kept.site}. Errors are refused and failed requests; p99 is that of the worst second.`
        : `Of ${kept.site}: ${after.seconds} of ${SIDE_S} seconds are over.`,
    );
    show(kept.note, true);
  }
}
