// Many nodes as cells: each always at the same place, darker the fuller it is, with a sign if something is
// wrong. One cell can be reached with Tab, arrows go from there; Enter opens the node's row.

import { make } from "../dom";
import { setAttribute } from "./elements";
import { fullness, sign } from "./fold";
import { type Ranked, complaints } from "./rank";
import type { Actions } from "./state";
import { readSentence, reason, tasksSentence } from "./words";

interface Cell {
  element: HTMLButtonElement;
  className: string;
  sign: string;
  state: string;
  isOpen: boolean;
}

export class GridView {
  readonly element = make("div", "cells");
  private cells: Cell[] = [];
  private shown: readonly Ranked[] = [];
  private current = 0;

  constructor(
    private readonly site: string,
    private readonly actions: Actions,
  ) {
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", `nodes of ${site}; the arrow keys go through them`);
    this.element.addEventListener("click", (event) => {
      const at = this.placeOf(event.target);
      if (at !== null) this.open(at);
    });
    this.element.addEventListener("keydown", (event) => this.key(event));
    // What a cell stands for is written when it is asked for: a thousand sentences a second are too many.
    this.element.addEventListener("pointerover", (event) => this.describe(this.placeOf(event.target)));
    this.element.addEventListener("focusin", (event) => this.describe(this.placeOf(event.target)));
  }

  update(shown: readonly Ranked[], open: ReadonlySet<string>): void {
    const isSame =
      shown.length === this.shown.length &&
      shown.every((it, at) => it.node.name === this.shown[at]?.node.name);
    this.shown = shown;
    if (!isSame) this.rebuild();
    for (let at = 0; at < shown.length; at += 1) {
      const [ranked, cell] = [shown[at], this.cells[at]];
      if (ranked && cell) change(cell, ranked, open.has(ranked.node.name));
    }
  }

  private rebuild(): void {
    this.cells = this.shown.map((_, at) => {
      const element = make("button");
      element.type = "button";
      element.tabIndex = -1;
      element.dataset["at"] = String(at);
      return { element, className: "", sign: "", state: "", isOpen: false };
    });
    this.current = 0;
    if (this.cells[0]) this.cells[0].element.tabIndex = 0;
    this.element.replaceChildren(...this.cells.map((it) => it.element));
  }

  private placeOf(target: EventTarget | null): number | null {
    const at = target instanceof HTMLElement ? target.dataset["at"] : undefined;
    return at === undefined ? null : Number(at);
  }

  private open(at: number): void {
    const node = this.shown[at]?.node.name;
    this.focus(at);
    if (node !== undefined) this.actions.toggleNode(this.site, node);
  }

  private describe(at: number | null): void {
    const [ranked, cell] = at === null ? [] : [this.shown[at], this.cells[at]];
    if (!ranked || !cell) return;
    const { node } = ranked;
    const said = [
      `${node.name}: ${reason(node.state)}`,
      tasksSentence(node),
      readSentence(node),
      ...complaints(ranked),
    ];
    cell.element.title = [...new Set(said)].join("; ");
  }

  private key(event: KeyboardEvent): void {
    const row = this.cells.findIndex((it) => it.element.offsetTop > (this.cells[0]?.element.offsetTop ?? 0));
    const width = row < 0 ? this.cells.length : row;
    const steps: Record<string, number> = {
      ArrowLeft: -1,
      ArrowRight: 1,
      ArrowUp: -width,
      ArrowDown: width,
      Home: -this.current,
      End: this.cells.length - 1 - this.current,
    };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const at = this.current + step;
    if (at >= 0 && at < this.cells.length) this.focus(at);
  }

  private focus(at: number): void {
    const [before, after] = [this.cells[this.current], this.cells[at]];
    if (before) before.element.tabIndex = -1;
    if (!after) return;
    after.element.tabIndex = 0;
    after.element.focus();
    this.current = at;
  }
}

/** Writes what has changed, and nothing else. */
function change(cell: Cell, ranked: Ranked, isOpen: boolean): void {
  const className = `${fullness(ranked)} ${ranked.level}`;
  if (cell.className !== className) cell.element.className = cell.className = className;
  const own = sign(ranked);
  if (cell.sign !== own) cell.element.textContent = cell.sign = own;
  const { node } = ranked;
  const state = `${node.name}: ${reason(node.state)}${ranked.level === "warn" ? ", something is wrong" : ""}`;
  if (cell.state !== state) {
    cell.state = state;
    setAttribute(cell.element, "aria-label", state);
    setAttribute(cell.element, "aria-pressed", String(isOpen));
    cell.isOpen = isOpen;
  }
  if (cell.isOpen !== isOpen) {
    cell.isOpen = isOpen;
    setAttribute(cell.element, "aria-pressed", String(isOpen));
  }
}
