// The table of classes: sorted, filtered, selected with the keyboard or the mouse.
//
// Exactly one row can be reached with Tab; arrows, Home, End and Page keys move from there. Rows keep
// their elements from one report to the next, so that focus and selection stay.

import { byId, make, named, setText } from "./dom";
import { badge } from "./answer_view";
import { claim } from "./claim";
import { amount, correlation, milliseconds, percent, plural, printable, probability } from "./format";
import { swatch } from "./palette";
import { type Group, type Key, type Row, type Sort, firstDirection, groups } from "./rows";
import { hintScroll } from "./scroll_hint";
import type { Actions, State } from "./state";
import { costShort } from "./verdict";

interface Column {
  key: Key;
  label: string;
  what: string;
  className: string;
  fill(cell: HTMLElement, row: Row, slot: number | null): void;
}

const PAGE_ROWS = 10;
/** Heads of groups that are kept, so that a focus stays on their buttons. */
const GROUP_HEADS_MAX = 100;

const COLUMNS: readonly Column[] = [
  {
    key: "class",
    label: "class",
    what: "a group of requests: method and pattern of the path",
    className: "word class",
    fill: (cell, { it }, slot) => {
      const sample = slot === null ? make("span", "swatch none") : swatch(slot);
      cell.append(make("span", "sampled", sample, named(it.name)));
    },
  },
  {
    key: "share",
    label: "share",
    what: "estimated share of the resource's capacity",
    className: "share",
    fill: (cell, { pair }) => {
      cell.append(percent(pair?.share ?? null), bar(pair?.share ?? 0));
    },
  },
  {
    key: "cost",
    label: "cost per request",
    what: "time of the resource that a request takes; from … to … where a full resource or a throttle hides the rest",
    className: "cost",
    fill: (cell, { pair }) => cell.append(pair ? costShort(pair) : milliseconds(null)),
  },
  {
    key: "verdict",
    label: "verdict",
    what: "how sure it is that the class loads the resource",
    className: "word verdict-column",
    fill: (cell, { pair, resource }) => {
      if (pair?.confidence == null) return cell.append(make("span", "soft", "–"));
      cell.append(badge({ pair, claim: claim(pair, resource) }));
    },
  },
  {
    key: "rate",
    label: "req/s",
    what: "requests per second",
    className: "short",
    fill: (cell, { it }) => cell.append(amount(it.per_second)),
  },
  {
    key: "p50",
    label: "p50",
    what: "median duration",
    className: "",
    fill: (cell, { it }) => cell.append(milliseconds(it.p50_ms)),
  },
  {
    key: "p99",
    label: "p99",
    what: "of a hundred requests, one takes longer",
    className: "",
    fill: (cell, { it }) => cell.append(milliseconds(it.p99_ms)),
  },
  {
    key: "r",
    label: "r",
    what: "Pearson's correlation with the use of the resource",
    className: "short statistic",
    fill: (cell, { pair }) => cell.append(correlation(pair?.pearson_r ?? null)),
  },
  {
    key: "p",
    label: "p",
    what: "probability of such an r by chance; a small one alone accuses no class",
    className: "short statistic",
    fill: (cell, { pair }) => cell.append(probability(pair?.pearson_p ?? null)),
  },
  {
    key: "error",
    label: "error",
    what: "relative error of the cost",
    className: "short statistic",
    fill: (cell, { pair }) => {
      cell.append(pair?.cost_error == null ? probability(null) : `± ${percent(pair.cost_error)}`);
    },
  },
  {
    key: "throttle",
    label: "throttle",
    what: "how the class is slowed down, and how many of its requests wait",
    className: "word throttle",
    fill: (cell, { it }) => {
      if (!it.throttle) return cell.append(make("span", "soft", "–"));
      const waiting = it.throttle.waiting ? `, ${amount(it.throttle.waiting)} waiting` : "";
      const text = printable(it.throttle.limits) + waiting;
      cell.title = text;
      cell.append(make("span", "throttled", text));
    },
  },
];

function bar(share: number): HTMLElement {
  const inner = make("i");
  inner.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return make("span", "bar", inner);
}

export class TableView {
  private readonly table = byId<HTMLTableElement>("classes");
  private readonly body = make("tbody");
  private readonly rows = new Map<string, HTMLTableRowElement>();
  private readonly groupHeads = new Map<string, HTMLElement>();
  private readonly heads = new Map<Key, HTMLElement>();
  private sort: Sort = { key: "verdict", descending: true };
  private order: string[] = [];

  constructor(
    private readonly actions: Actions,
    private readonly experiment: (name: string) => void,
  ) {
    this.table.append(make("thead", "", this.head()), this.body);
    this.body.addEventListener("keydown", (event) => this.key(event));
    const filter = byId<HTMLInputElement>("filter");
    const accused = byId<HTMLInputElement>("accused");
    const changed = () => this.actions.filter(filter.value, accused.checked);
    filter.addEventListener("input", changed);
    accused.addEventListener("change", changed);
    const statistics = byId<HTMLInputElement>("statistics");
    statistics.addEventListener("change", () =>
      this.table.classList.toggle("statistics", statistics.checked),
    );
    hintScroll(byId("classes-scroll"), byId("classes-hint"), "Table of classes, scrolls");
  }

  render(state: State): void {
    if (!state.report) return;
    const resource = state.resource();
    this.sort = state.sort;
    for (const [key, head] of this.heads) {
      const direction = state.sort.descending ? "descending" : "ascending";
      head.setAttribute("aria-sort", key === state.sort.key ? direction : "none");
    }
    const wanted = { ...state, resource: resource?.name ?? null };
    const shown = groups(state.report, wanted);
    const focused = document.activeElement?.closest("tr")?.dataset["class"];
    this.order = shown.flat().map(({ it }) => it.name);
    const kept = new Set(this.order);
    for (const name of this.rows.keys()) if (!kept.has(name)) this.rows.delete(name);
    const elements = shown.flatMap((group) => this.group(group, state));
    // What has the focus is left alone where nothing moves.
    if (elements.some((element, index) => element !== this.body.children[index])) {
      this.body.replaceChildren(...elements);
      if (focused !== undefined) this.rows.get(focused)?.focus({ preventScroll: true });
    } else {
      while (this.body.children.length > elements.length) this.body.lastElementChild?.remove();
    }
    const all = state.report.classes.length;
    const some = this.order.length;
    setText(byId("table-note"), some === all ? plural(all, "class", "classes") : `${some} of ${all} classes`);
    byId("table-empty").hidden = some > 0;
  }

  private head(): HTMLTableRowElement {
    const row = make("tr");
    for (const { key, label, what, className } of COLUMNS) {
      const button = make("button", "sort", label);
      button.type = "button";
      button.title = `${what}; sort by it`;
      button.addEventListener("click", () => {
        const descending = this.sort.key === key ? !this.sort.descending : firstDirection(key);
        this.actions.sortBy({ key, descending });
      });
      const cell = make("th", className, button);
      cell.scope = "col";
      this.heads.set(key, cell);
      row.append(cell);
    }
    return row;
  }

  private group(group: Group, state: State): HTMLElement[] {
    const together = group.length > 1;
    const rows = group.map((row) => this.row(row, state, together));
    return together ? [this.groupHead(group, state), ...rows] : rows;
  }

  private groupHead(group: Group, state: State): HTMLElement {
    const key = JSON.stringify([state.live, ...group.map(({ it }) => it.name).sort()]);
    const known = this.groupHeads.get(key);
    if (known) return known;
    const text = `These ${group.length} run at the same times: one of them is meant, or several. `;
    const cell = make("td", "", text);
    cell.colSpan = COLUMNS.length;
    const first = group[0];
    if (state.live && first) {
      const button = make("button", "small screen", "Find out by an experiment…");
      button.type = "button";
      button.addEventListener("click", () => this.experiment(first.it.name));
      cell.append(button);
    }
    const made = make("tr", "grouphead", cell);
    if (this.groupHeads.size >= GROUP_HEADS_MAX) this.groupHeads.clear();
    this.groupHeads.set(key, made);
    return made;
  }

  private row(row: Row, state: State, together: boolean): HTMLElement {
    const { name } = row.it;
    const element = this.rows.get(name) ?? this.newRow(name);
    const selected = name === state.selected;
    element.className = together ? "together" : "";
    element.setAttribute("aria-selected", String(selected));
    element.tabIndex =
      selected || (!this.order.includes(state.selected ?? "") && name === this.order[0]) ? 0 : -1;
    const slot = state.slots.slot(name);
    const cells = COLUMNS.map(({ label, className, fill }) => {
      const cell = make("td", className);
      cell.dataset["label"] = label;
      fill(cell, row, slot);
      return cell;
    });
    element.replaceChildren(...cells);
    return element;
  }

  private newRow(name: string): HTMLTableRowElement {
    const row = make("tr");
    row.dataset["class"] = name;
    row.addEventListener("click", () => this.actions.select(name));
    this.rows.set(name, row);
    return row;
  }

  private key(event: KeyboardEvent): void {
    const row = event.target;
    if (!(row instanceof HTMLTableRowElement) || event.altKey || event.ctrlKey || event.metaKey) return;
    const at = this.order.indexOf(row.dataset["class"] ?? "");
    const last = this.order.length - 1;
    const moves: Record<string, number> = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      PageDown: at + PAGE_ROWS,
      PageUp: at - PAGE_ROWS,
      Home: 0,
      End: last,
    };
    const wanted = moves[event.key];
    if (wanted === undefined) return;
    event.preventDefault();
    const name = this.order[Math.max(0, Math.min(last, wanted))];
    if (name === undefined) return;
    this.actions.select(name);
    this.rows.get(name)?.focus();
  }
}
