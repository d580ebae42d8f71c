// Moves: how many nodes each site had over the last minutes, and the latest moves.

import { byId, make } from "../dom";
import { button, drawing, setClass, show, svg, write } from "./elements";
import { type Move, type Moves, type MovesRow, SCALE_HEIGHT, SPAN_S } from "./moves";
import { agoSentence, countsPath, moveSentence, movesRows } from "./moves";
import type { Actions, State } from "./state";
import { count, plural } from "./words";

const SITES_SHOWN = 20;
const LISTED = 5;

export class MovesView {
  private readonly pause: HTMLButtonElement;
  private isPaused = false;
  private drawn = "";

  constructor(
    private readonly state: State,
    private readonly actions: Actions,
  ) {
    this.pause = byId<HTMLButtonElement>("moves-pause");
    this.pause.addEventListener("click", () => actions.order({ kind: this.isPaused ? "resume" : "pause" }));
  }

  /** Without moves: why there are none. */
  none(text: string, kind: "soft" | "bad"): void {
    this.drawn = "";
    this.note(text, kind);
    show(this.pause, false);
    byId("moves-rows").replaceChildren();
    byId("moves-list").replaceChildren();
  }

  update(moves: Moves): void {
    this.isPaused = moves.paused;
    show(this.pause, this.state.mayAct);
    write(this.pause, moves.paused ? "Resume…" : "Pause…");
    if (moves.trouble !== null) this.note(moves.trouble, "bad");
    else if (moves.paused) this.note("load moves no node: paused by an operator", "warn");
    else if (moves.dry_run) this.note("load moves no node: a dry run", "warn");
    else this.note("nodes by site", "soft");
    // Rows have buttons: what has not changed keeps its focus.
    const wanted = JSON.stringify([moves, this.state.mayAct]);
    if (wanted === this.drawn) return;
    this.drawn = wanted;
    this.draw(moves);
  }

  private draw(moves: Moves): void {
    const { rows, rest, scale } = movesRows(moves, SITES_SHOWN);
    const ends = make("div", "ends soft small", make("span", "", "10 min ago"), make("span", "", "now"));
    const more = rest > 0 ? [make("p", "soft", `and ${plural(rest, "site")} more`)] : [];
    byId("moves-rows").replaceChildren(
      ...rows.map((row) => this.row(row, scale)),
      ...more,
      make("div", "moverow", make("span"), ends),
    );
    const listed = moves.all.slice(0, LISTED).map((it) => {
      const item = make("li", it.failed === null ? "" : "bad");
      write(item, `${agoSentence(it)} · ${moveSentence(it)}`);
      return item;
    });
    const none = moves.all.length === 0 ? [make("li", "soft", "no node has moved")] : [];
    byId("moves-list").replaceChildren(...listed, ...none);
  }

  private row({ site, own, counts }: MovesRow, scale: number): HTMLElement {
    const name = make("b");
    write(name, site.site);
    const pressure = site.pressure === null ? "" : `, ${count(site.pressure)} tasks per CPU`;
    const label = make("div", "", name, " ", make("span", "soft", plural(site.nodes, "node") + pressure));
    label.title = site.verdict;
    if (site.frozen) label.append(" ", make("span", "warn", "frozen"));
    if (this.state.mayAct) {
      const kind = site.frozen ? "thaw" : "freeze";
      const hand = button("hand small", site.frozen ? "Thaw…" : "Freeze…", () => {
        this.actions.order({ kind, site: site.site });
      });
      hand.setAttribute("aria-label", `${kind} ${site.site}`);
      label.append(" ", hand);
    }
    const path = svg("path");
    path.setAttribute("d", countsPath(counts, scale));
    const box = drawing(SPAN_S, SCALE_HEIGHT, "", path);
    box.setAttribute("viewBox", `0 -2 ${SPAN_S} ${SCALE_HEIGHT + 4}`);
    const track = make("div", "timeline");
    track.append(box, ...own.map((it) => tick(it, site.site)));
    const row = make("div", "moverow", label, track);
    row.dataset["site"] = site.site;
    return row;
  }

  private note(text: string, kind: string): void {
    write(byId("moves-note"), text);
    setClass(byId("moves-note"), kind);
  }
}

function tick(it: Move, site: string): HTMLElement {
  const [sign, kind] = it.failed !== null ? ["✕", "bad"] : it.to === site ? ["▲", "good"] : ["▼", "warn"];
  const element = make("i", kind, sign ?? "");
  element.title = `${agoSentence(it)}, ${moveSentence(it)}`;
  element.style.left = `${100 * (1 - it.ago / SPAN_S)}%`;
  return element;
}
