// What is seen now, what is open, and what can be done about it.

import type { Event, EventFilter } from "./events";
import { EVERYTHING } from "./events";
import { type Choice, UNCHOSEN } from "./fold";
import type { Hand } from "./hands";
import type { Shown, Topic } from "./hash";
import type { History, NodeHistory, SiteHistory } from "./history";
import type { Overview } from "./overview";
import type { Throttle } from "./why";

export interface Actions {
  toggleSite(site: string, open: boolean): void;
  moreRows(site: string, rows: number): void;
  toggleNode(site: string, node: string): void;
  explain(topic: Topic | null): void;
  /** Opens the dialog for a node, a site's classes, or one order. */
  actOnNode(site: string, node: string): void;
  throttle(site: string): void;
  release(site: string, classes: string[]): void;
  order(hand: Hand): void;
}

export class State {
  seen: Overview | null = null;
  history: History | null = null;
  events: Event[] = [];
  /** When the process began that counts the events' numbers. */
  eventsSince: number | null = null;
  eventFilter: EventFilter = EVERYTHING;
  throttles: Throttle[] = [];
  mayAct = false;
  shown: Shown = { topic: null, filter: "", open: new Map() };
  private readonly rows = new Map<string, { rows: number; nodes: Set<string> }>();
  private siteHistories = new Map<string, SiteHistory>();
  private nodeHistories = new Map<string, NodeHistory>();

  choice(site: string): Choice {
    const own = this.rows.get(site);
    return { ...UNCHOSEN, ...own, open: this.shown.open.get(site) ?? null };
  }

  setRows(site: string, rows: number): void {
    this.rowsOf(site).rows = rows;
  }

  toggleNode(site: string, node: string): void {
    const { nodes } = this.rowsOf(site);
    if (!nodes.delete(node)) nodes.add(node);
  }

  private rowsOf(site: string) {
    const own = this.rows.get(site) ?? { rows: 0, nodes: new Set<string>() };
    this.rows.set(site, own);
    return own;
  }

  takeHistory(history: History): void {
    this.history = history;
    this.siteHistories = new Map(history.sites.map((it) => [it.name, it]));
    this.nodeHistories = new Map(history.nodes.map((it) => [it.name, it]));
  }

  siteHistory(site: string): SiteHistory | null {
    return this.siteHistories.get(site) ?? null;
  }

  nodeHistory(node: string): NodeHistory | null {
    return this.nodeHistories.get(node) ?? null;
  }
}
