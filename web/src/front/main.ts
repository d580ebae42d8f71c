// The front page: what hurts, at a glance, and the hand on it.

import { TokenError } from "../client";
import { byId } from "../dom";
import { Asking } from "./asking";
import { Client, NotThere } from "./client";
import { DialogView, type Question } from "./dialog_view";
import { EffectsView } from "./effects_view";
import { arrange, show, write } from "./elements";
import { EventsView } from "./events_view";
import { fold, matching } from "./fold";
import type { Hand } from "./hands";
import { hashOf, parseHash, type Topic } from "./hash";
import { HeadlineView } from "./headline_view";
import { MovesView } from "./moves_view";
import { PanelView } from "./panel_view";
import {
  nodeQuestion,
  plainQuestion,
  releaseQuestion,
  reloadQuestion,
  throttleQuestion,
} from "./questions_view";
import { type RankedSite, worstSitesFirst } from "./rank";
import { SiteView } from "./site_view";
import { type Actions, State } from "./state";
import { parsePlan } from "./why";
import { plural } from "./words";

const PERIOD_MS = 1000;
/** So long after a key or a move of the mouse over them, sites and nodes keep their places. */
const HOLD_MS = 3000;

class Page {
  private readonly client = new Client();
  private readonly state = new State();
  private readonly asking = new Asking(this.client, this.state);
  private readonly actions: Actions = {
    toggleSite: (site, open) => this.change(() => this.state.shown.open.set(site, open)),
    moreRows: (site, rows) => this.change(() => this.state.setRows(site, rows)),
    toggleNode: (site, node) => this.change(() => this.state.toggleNode(site, node)),
    explain: (topic) => this.explain(topic),
    actOnNode: (site, node) => this.ask((seen) => nodeQuestion(seen, site, node)),
    throttle: (site) => this.ask(() => throttleQuestion(site)),
    release: (site, classes) => this.ask(() => releaseQuestion(site, classes)),
    order: (hand) => this.ask(() => plainQuestion(hand)),
  };
  private readonly headline = new HeadlineView();
  private readonly sites = new Map<string, SiteView>();
  private readonly events = new EventsView(this.state, this.actions);
  private readonly effects = new EffectsView(this.client, this.state, this.actions);
  private readonly panel = new PanelView(this.client, this.state, this.actions);
  private readonly moves = new MovesView(this.state, this.actions);
  private readonly dialog = new DialogView(this.client, this.state, (hand, note) => this.done(hand, note));
  private readonly filter = byId<HTMLInputElement>("filter");
  private timer: ReturnType<typeof setTimeout> | null = null;
  private isAsking = false;
  private lastSeen: Date | null = null;
  private heldUntil = 0;

  start(): void {
    this.readHash();
    window.addEventListener("hashchange", () => this.readHash());
    document.addEventListener("visibilitychange", () => this.schedule(0));
    this.filter.addEventListener("input", () => {
      this.change(() => (this.state.shown.filter = this.filter.value));
    });
    byId("login").addEventListener("submit", (event) => {
      event.preventDefault();
      this.client.token = byId<HTMLInputElement>("token").value;
      this.asking.reset();
      this.schedule(0);
    });
    byId("lookup").addEventListener("submit", (event) => {
      event.preventDefault();
      const name = byId<HTMLInputElement>("request-id").value.trim();
      if (name) this.explain({ kind: "request", name });
    });
    byId("reload").addEventListener("click", () => void this.askReload());
    for (const hand of ["pointermove", "pointerdown", "keydown"]) {
      byId("sites").addEventListener(hand, () => (this.heldUntil = performance.now() + HOLD_MS));
    }
    this.schedule(0);
  }

  // === asking

  private schedule(after: number): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
    if (document.visibilityState === "hidden" || this.isAsking) return;
    this.timer = setTimeout(() => void this.update(), after);
  }

  private async update(): Promise<void> {
    this.isAsking = true;
    try {
      await this.asking.overview();
      show(byId("login"), false);
      this.notice("");
      const isFirst = this.lastSeen === null;
      this.lastSeen = new Date();
      // What is known already is shown at once.
      this.render("overview");
      await Promise.all([this.asking.others(), this.effects.update()]);
      this.render("others");
      const { topic } = this.state.shown;
      if (isFirst && topic) void this.panel.open(topic);
    } catch (error) {
      show(byId("login"), error instanceof TokenError);
      this.notice(this.sentence(error));
    }
    this.isAsking = false;
    this.schedule(PERIOD_MS);
  }

  private sentence(error: unknown): string {
    if (error instanceof TokenError) return error.message;
    if (error instanceof NotThere) return "This front-end has no overview: it is older than this page.";
    const text = error instanceof Error ? error.message.replace(/\.$/, "") : String(error);
    const since = this.lastSeen ? `, last heard of at ${this.lastSeen.toLocaleTimeString()}` : "";
    return `${text}${since}; trying again.`;
  }

  private notice(text: string): void {
    show(byId("notice"), text !== "");
    write(byId("notice"), text);
    document.body.classList.toggle("stale", text !== "");
  }

  // === what is shown

  private change(what: () => unknown): void {
    what();
    this.writeHash();
    this.render("operator");
  }

  /** `why`: what is new. What the operator has just asked for is not held back. */
  private render(why: "overview" | "others" | "operator"): void {
    const { seen } = this.state;
    if (!seen) return;
    const began = performance.now();
    show(byId("live"), true);
    this.headline.update(seen);
    this.renderSites(worstSitesFirst(seen.sites), why !== "operator" && performance.now() < this.heldUntil);
    this.events.update(this.asking.hasEvents);
    const { moves, movesNote } = this.asking;
    if (moves) this.moves.update(moves);
    else if (movesNote) this.moves.none(movesNote.text, movesNote.kind);
    show(byId("history-note"), !this.asking.hasHistory);
    write(byId("history-note"), "The last 15 minutes are not known: this front-end is older than this page.");
    show(byId("reload"), this.state.mayAct);
    write(byId("access"), this.state.mayAct ? "" : "read-only token: nothing can be done from here");
    performance.measure(`render ${why}`, { start: began });
    performance.clearMeasures();
  }

  private renderSites(ranked: readonly RankedSite[], held: boolean): void {
    const { filter } = this.state.shown;
    const shown = ranked.filter(
      (it) => it.nodes.length === 0 || matching(it.site, it.nodes, filter).length > 0,
    );
    const elements = shown.map((it) => {
      const { name } = it.site;
      const view = this.sites.get(name) ?? new SiteView(name, this.actions);
      this.sites.set(name, view);
      const folded = fold(it, ranked.length, this.state.choice(name), filter);
      view.update(it, folded, this.state, this.actions, held);
      return view.element;
    });
    arrange(byId("sites"), elements, held);
    const known = new Set(ranked.map((it) => it.site.name));
    for (const name of this.sites.keys()) if (!known.has(name)) this.sites.delete(name);
    show(byId("sites-empty"), shown.length === 0);
    const nodes = shown.reduce((sum, it) => sum + matching(it.site, it.nodes, filter).length, 0);
    write(byId("filter-note"), filter.trim() === "" ? "" : plural(nodes, "node"));
  }

  // === what is open

  private readHash(): void {
    const before = this.state.shown.topic;
    this.state.shown = parseHash(location.hash);
    const { topic, filter } = this.state.shown;
    if (this.filter.value !== filter) this.filter.value = filter;
    const isOther = topic?.kind !== before?.kind || topic?.name !== before?.name;
    // Before the first answers there is nothing to explain.
    if (isOther && this.lastSeen) void this.panel.open(topic);
    this.render("operator");
  }

  private writeHash(): void {
    const hash = hashOf(this.state.shown);
    if (hash !== location.hash) history.replaceState(null, "", hash || location.pathname);
  }

  private explain(topic: Topic | null): void {
    this.state.shown.topic = topic;
    this.writeHash();
    void this.panel.open(topic);
  }

  // === hands

  private ask(make: (seen: NonNullable<State["seen"]>) => Question): void {
    if (this.state.seen) this.dialog.ask(make(this.state.seen));
  }

  private async askReload(): Promise<void> {
    try {
      const plan = parsePlan(await this.client.order({ path: "/api/reload?dry_run", body: null }));
      this.ask(() => reloadQuestion(plan));
    } catch (error) {
      this.notice(`The configuration file cannot be put in force: ${this.sentence(error)}`);
    }
  }

  private done(hand: Hand, note: string | null): void {
    this.effects.begin(hand, note);
    this.asking.hurry();
    this.schedule(0);
  }
}

new Page().start();
