// One site: what it answers and loses, its charts, the rows of its nodes, and cells where they are many.

import { make } from "../dom";
import { ChartsView } from "./charts_view";
import { arrange, button, setAttribute, setClass, show, write } from "./elements";
import { type Fold, MORE_ROWS } from "./fold";
import { GridView } from "./grid_view";
import { type Level, type Site, total } from "./overview";
import { type RankedSite, isWrong, lost, neighbours } from "./rank";
import { RowView, tableHead } from "./row_view";
import type { Actions, State } from "./state";
import { count, plural, reasonsPerSecond, time } from "./words";
import { throttlesOf } from "./why";

const MARKS: Record<Level, string> = { bad: "✕", warn: "!", good: "" };
const GROWN_MAX = 3;

export class SiteView {
  readonly element = make("section", "site");
  private readonly toggle: HTMLButtonElement;
  private readonly mark = make("span", "mark");
  private readonly name: HTMLButtonElement;
  private readonly address = make("span", "soft address");
  private readonly candidates = make("span");
  private readonly rate = make("span", "figures");
  private readonly lost: HTMLButtonElement;
  private readonly waits = make("span", "warn");
  private readonly notes = make("p", "note warn");
  private readonly throttled = make("p", "note throttled");
  private readonly release: HTMLButtonElement;
  private readonly throttledText = make("span");
  private readonly hands = make("span", "right");
  private readonly charts: ChartsView;
  private readonly grid: GridView;
  private readonly legend = make("p", "legend soft small");
  private readonly body = make("tbody");
  private readonly table = make("table", "nodes", tableHead(), this.body);
  private readonly more: HTMLButtonElement;
  private readonly rows = new Map<string, RowView>();
  private isOpen = false;
  private shownRows = 0;
  private throttledClasses: string[] = [];

  constructor(name: string, actions: Actions) {
    this.element.dataset["site"] = name;
    this.toggle = button("toggle", "", () => actions.toggleSite(name, !this.isOpen));
    this.name = button("link name", name, () => actions.explain({ kind: "site", name }));
    this.lost = button("link lost", "", () => actions.explain({ kind: "refusals", name }));
    this.release = button("hand small", "Release…", () => actions.release(name, this.throttledClasses));
    this.more = button("small more", "", () => actions.moreRows(name, this.shownRows + MORE_ROWS));
    this.hands.append(button("hand small", "Throttle…", () => actions.throttle(name)));
    this.throttled.append(this.throttledText, " ", this.release);
    this.charts = new ChartsView(name);
    this.grid = new GridView(name, actions);
    this.legend.append(...legend());
    const title = make("h2", "", this.mark, this.name);
    title.id = `site-${name}`;
    this.element.setAttribute("aria-labelledby", title.id);
    this.table.setAttribute("aria-labelledby", title.id);
    this.element.append(
      make(
        "div",
        "head",
        this.toggle,
        title,
        this.lost,
        this.candidates,
        this.rate,
        this.waits,
        this.address,
        this.hands,
      ),
      this.notes,
      this.throttled,
      this.charts.element,
      make("div", "scroll", this.table),
      this.more,
      this.grid.element,
      this.legend,
    );
  }

  update(ranked: RankedSite, fold: Fold, state: State, actions: Actions, held: boolean): void {
    const { site, level } = ranked;
    this.isOpen = fold.isOpen;
    setClass(this.element, `site ${level}${fold.isOpen ? "" : " folded"}`);
    write(this.mark, MARKS[level]);
    setAttribute(this.toggle, "aria-expanded", String(fold.isOpen));
    setAttribute(this.toggle, "aria-label", `${fold.isOpen ? "Fold" : "Unfold"} ${site.name}`);
    this.updateHead(site);
    this.updateThrottles(site, state);
    show(this.hands, state.mayAct);
    show(this.charts.element, fold.isOpen);
    if (fold.isOpen) this.charts.update(site, state);
    this.updateRows(ranked, fold, state, actions, held);
    show(this.grid.element, fold.cells.length > 0);
    show(this.legend, fold.cells.length > 0 && fold.isOpen);
    if (fold.cells.length > 0) this.grid.update(fold.cells, state.choice(site.name).nodes);
  }

  private updateHead(site: Site): void {
    const gone = lost(site);
    show(this.lost, gone > 0);
    if (gone > 0) write(this.lost, lostSentence(site));
    const all = site.nodes.length;
    const isOut = all > 0 && (site.candidates === 0 || site.fail_open);
    const out = isOut ? "bad" : site.candidates < all ? "warn" : "soft";
    setClass(this.candidates, out);
    const open = site.fail_open ? "; none is up: ejected ones are used" : "";
    const part =
      site.candidates === all ? plural(all, "node") : `${site.candidates} of ${plural(all, "node")}`;
    write(this.candidates, part + open);
    const times = `p50 ${time(site.p50_seconds)}, p99 ${time(site.p99_seconds)}`;
    write(this.rate, `${count(site.requests_per_second)} requests/s, ${times}`);
    const wait = site.queue_wait_p99_seconds === null ? "" : `, up to ${time(site.queue_wait_p99_seconds)}`;
    write(this.waits, site.queued > 0 ? `${plural(site.queued, "waits", "wait")} for room${wait}` : "");
    write(this.address, [...site.hosts, ...site.paths, `policy ${site.policy}`].join(" · "));
    const grown = site.grown.slice(0, GROWN_MAX).map((it) => {
      return `${it.kind ?? "kinds that share a place"} (${count(it.in_flight)} in flight)`;
    });
    show(this.notes, grown.length > 0);
    if (grown.length)
      write(this.notes, `Goes last where room is short, since it has grown: ${grown.join(", ")}.`);
  }

  private updateThrottles(site: Site, state: State): void {
    const sites = state.seen?.sites.map((it) => it.name) ?? [];
    const own = throttlesOf(state.throttles, site.name, sites);
    this.throttledClasses = own.map((it) => it.class);
    show(this.throttled, own.length > 0);
    show(this.release, state.mayAct);
    const said = own.map((it) => `${it.class} (by ${it.set_by}, ${plural(it.waiting, "waits", "wait")})`);
    if (own.length) write(this.throttledText, `Throttled: ${said.join(", ")}.`);
  }

  private updateRows(ranked: RankedSite, fold: Fold, state: State, actions: Actions, held: boolean): void {
    const { site } = ranked;
    const wanted = fold.rows.map((it) => {
      const { name } = it.node;
      const row = this.rows.get(name) ?? new RowView(site.name, name, actions);
      this.rows.set(name, row);
      row.update(it, neighbours(it.node, site.nodes), state);
      return row.element;
    });
    arrange(this.body, wanted, held);
    if (this.rows.size > wanted.length) {
      const stay = new Set(fold.rows.map((it) => it.node.name));
      for (const name of this.rows.keys()) if (!stay.has(name)) this.rows.delete(name);
    }
    this.shownRows = wanted.length;
    show(this.table, wanted.length > 0);
    show(this.more, fold.isOpen && fold.rest > 0);
    if (fold.rest > 0) write(this.more, moreLabel(fold));
  }
}

function moreLabel({ rest, cells, rows }: Fold): string {
  const next = Math.min(rest, MORE_ROWS);
  const hidden = cells.filter(isWrong).length - rows.filter(isWrong).length;
  const wrong = hidden > 0 ? `, ${hidden} of them wrong` : "";
  return next === rest
    ? `Show the other ${rest} rows${wrong}`
    : `Show ${next} of the other ${rest} rows${wrong}`;
}

/** `702/s refused (610/s no room, 92/s queue timeout), 41/s failed (connect)`. */
function lostSentence(site: Site): string {
  const part = (reasons: Site["refused"], word: string) => {
    const sum = total(reasons);
    return sum > 0 ? [`${count(sum)}/s ${word}: ${reasonsPerSecond(reasons)}`] : [];
  };
  return [...part(site.refused, "refused"), ...part(site.errors, "failed")].join("; ");
}

/** Samples of cells, made as the cells are. */
function legend(): (Node | string)[] {
  const sample = (kind: string, text: string) =>
    make("span", `cells sample ${kind}`, make("span", kind, text));
  const scale = [0, 2, 4, 6, 8].map((tenth) => sample(`l${tenth} good`, ""));
  return [
    "CPU 0 % ",
    ...scale,
    " 100 %, ",
    sample("over warn", "!"),
    " full with 1.5 tasks and more for each CPU, ",
    sample("unknown bad", "✕"),
    " ejected, ",
    sample("l4 note", "d"),
    " drained, ",
    sample("unknown good", ""),
    " load not known. A click opens the node's row.",
  ];
}
