// A cluster that behaves by functions of time, and the interface of a front-end before it.
//
// Its clock stands at NOW and goes on by `pace` seconds with each overview that is asked for, so the same
// questions have the same answers.

import type { Answer, Asked, Scene } from "./server";

/** A Sunday, a bit past three in the morning. */
export const NOW = Date.UTC(2026, 2, 8, 3, 12, 30) / 1000;
const UPTIME = 86_400 * 3 + 7322;

/** Seconds since NOW, negative before it. */
type At<T> = (time: number) => T;

export interface NodeModel {
  name: string;
  state: At<string>;
  source: string;
  cpus: number;
  /** Used share of its CPUs; null: not known. */
  cpu: At<number | null>;
  /** Part in the site's answers. */
  share: At<number>;
  p99: At<number>;
  errors: At<number>;
  note: At<string | null>;
  weight: number;
}

export interface SiteModel {
  name: string;
  hosts: string[];
  paths: string[];
  policy: string;
  nodes: NodeModel[];
  requests: At<number>;
  refused: At<Record<string, number>>;
  errors: At<Record<string, number>>;
  p99: At<number>;
  queued: At<number>;
  grown: { kind: string | null; in_flight: number }[];
}

export interface EventModel {
  at: number;
  kind: string;
  level: "good" | "warn" | "bad" | "note";
  site: string | null;
  node: string | null;
  by?: string;
  text: string;
  /** How often it was so, and how long ago for the first time. */
  times?: number;
  first?: number;
}

type Json = Record<string, unknown>;

/** Noise between -1 and 1 that depends on its arguments alone. */
export function noise(time: number, salt: number): number {
  const wave = Math.sin(time * 12.9898 + salt * 78.233) * 43_758.5453;
  return 2 * (wave - Math.floor(wave)) - 1;
}

const sum = (values: Record<string, number>) => Object.values(values).reduce((all, it) => all + it, 0);
const round = (value: number | null) => (value === null ? null : Number(value.toPrecision(4)));

export class Cluster implements Scene {
  time = 0;
  /** Seconds by which the clock goes on with each overview. */
  pace = 1;
  headline: Json = { level: "good", text: "", others: [] };
  events: EventModel[] = [];
  /** When the process began that counts the events. */
  since = NOW;
  access: Json | null = { may_act: true, token: "none", by: "127.0.0.1" };
  moves: Json | null = null;
  throttles: Json[] = [];
  requests: Json[] = [];
  plan: Json = { applied: false, changes: [], upgrade: [], restart: [], notes: [] };
  why: (name: string) => Json | null = () => null;
  /** Paths that this front-end does not know, as an older one. */
  readonly missing = new Set<string>();
  /** What an order does; an answer of its own if it is refused. */
  onPost: (asked: Asked) => Answer | null = () => null;

  constructor(public sites: SiteModel[]) {}

  answer(asked: Asked): Answer | null {
    if (this.missing.has(asked.path)) return null;
    if (asked.method === "POST") return this.onPost(asked) ?? this.post(asked);
    switch (asked.path) {
      case "/api/overview":
        this.time += this.pace;
        return { json: this.overview() };
      case "/api/history":
        return { json: this.history(asked.query) };
      case "/api/events":
        return { json: this.eventsAfter(Number(asked.query.get("after") ?? 0)) };
      case "/api/access":
        return this.access && { json: this.access };
      case "/api/moves":
        return this.moves && { json: this.moves };
      case "/api/throttles":
        return { json: { throttles: this.throttles, unmarked: null } };
      case "/api/requests":
        return this.requestsFor(asked.query);
    }
    if (!asked.path.startsWith("/api/why/")) return null;
    const why = this.why(asked.path.slice("/api/why/".length));
    return why && { json: why };
  }

  node(name: string): NodeModel {
    const found = this.sites.flatMap((site) => site.nodes).find((it) => it.name === name);
    if (!found) throw new Error(`there is no node ${name}`);
    return found;
  }

  overview(): Json {
    const time = this.time;
    const sites = this.sites.map((site) => this.site(site));
    const rate = this.sites.reduce((all, it) => all + it.requests(time), 0);
    const errors = this.sites.reduce((all, it) => all + sum(it.errors(time)), 0);
    const slowest = Math.max(...this.sites.map((it) => it.p99(time)));
    const nodes = this.sites.reduce((all, it) => all + it.nodes.length, 0);
    return {
      version: "0.1.0",
      uptime_seconds: UPTIME + time,
      at_seconds: NOW + time,
      ready: true,
      draining: false,
      listeners: ["0.0.0.0:80", "0.0.0.0:443"],
      front_ends: 2,
      topology_version: 7,
      newest_event: this.events.length,
      headline: this.headline,
      recent: {
        requests_per_second: round(rate),
        errors_per_second: round(errors),
        p50_seconds: round(slowest / 9),
        p99_seconds: round(slowest),
      },
      load_age_p99_seconds: 0.0021,
      in_flight: Math.round(rate * slowest * 0.3),
      connections: Math.round(rate * 1.4),
      completed: 182_733_021 + Math.round(rate * time),
      failed: 212,
      rejected: 1741,
      cancelled: 932,
      reader: { nodes, interval_seconds: 0.0017, realtime: true, note: null },
      sites,
    };
  }

  private site(site: SiteModel): Json {
    const time = this.time;
    const rate = site.requests(time);
    const up = site.nodes.filter((it) => ["up", "failing"].includes(it.state(time))).length;
    return {
      name: site.name,
      policy: site.policy,
      hosts: site.hosts,
      paths: site.paths,
      candidates: up,
      fail_open: false,
      requests_per_second: round(rate),
      p50_seconds: round(site.p99(time) / 9),
      p99_seconds: round(site.p99(time)),
      queued: Math.round(site.queued(time)),
      queue_wait_p99_seconds: site.queued(time) > 0 ? round(site.queued(time) / (rate + 1)) : null,
      refused: site.refused(time),
      errors: site.errors(time),
      grown: site.grown,
      nodes: site.nodes.map((node, place) => this.row(node, place, rate)),
    };
  }

  private row(node: NodeModel, place: number, rate: number): unknown[] {
    const time = this.time;
    const state = node.state(time);
    const cpu = node.cpu(time);
    const share = state === "up" || state === "failing" ? node.share(time) : 0;
    const tasks = cpu === null ? null : Math.max(0, Math.round(cpu * node.cpus * (cpu > 0.95 ? 1.7 : 1.05)));
    const age =
      node.source === "none" ? null : cpu === null ? 4.2 + time : 0.0008 + 0.0006 * (1 + noise(time, place));
    const known = cpu === null ? null : Math.min(1, cpu);
    const answers = rate * share;
    return [
      node.name,
      state,
      node.source,
      tasks,
      cpu === null ? null : node.cpus,
      known === null ? null : Math.round(known * 100) / 100,
      age === null ? null : Number(age.toPrecision(2)),
      Math.round(answers * 0.04),
      answers > 0 ? Math.round(share * 1e4) / 1e4 : null,
      Number(answers.toPrecision(3)),
      answers > 0 ? Number((node.p99(time) / 9).toPrecision(2)) : null,
      answers > 0 ? Number(node.p99(time).toPrecision(2)) : null,
      node.errors(time),
      node.weight,
      node.note(time),
    ];
  }

  private history(query: URLSearchParams): Json {
    const step = Number(query.get("step") ?? 10);
    const steps = Number(query.get("last") ?? 90);
    const end = Math.floor((NOW + this.time) / step) * step;
    const times = Array.from({ length: steps }, (_, at) => end - (steps - at - 0.5) * step - NOW);
    const only = query.get("site");
    const sites = this.sites.filter((it) => only === null || it.name === only);
    return {
      step_seconds: step,
      steps,
      end_seconds: end,
      sites: sites.map((site) => ({
        name: site.name,
        requests_per_second: times.map((time) => round(site.requests(time))),
        refused_per_second: times.map((time) => round(sum(site.refused(time)))),
        errors_per_second: times.map((time) => round(sum(site.errors(time)))),
        p50_seconds: times.map((time) => round(site.p99(time) / 9)),
        p99_seconds: times.map((time) => round(site.p99(time))),
        queued: times.map((time) => Math.round(site.queued(time))),
        reasons: Cluster.reasons(site, times, step),
      })),
      nodes: sites.flatMap((site) =>
        site.nodes.map((node) => ({
          name: node.name,
          site: site.name,
          load: times.map((time) => Cluster.letter(node, time)).join(""),
        })),
      ),
    };
  }

  private static reasons(site: SiteModel, times: number[], step: number): Record<string, number[]> {
    const all: Record<string, number[]> = {};
    for (const [at, time] of times.entries()) {
      for (const [reason, often] of Object.entries({ ...site.refused(time), ...site.errors(time) })) {
        const steps = (all[reason] ??= times.map(() => 0));
        steps[at] = Math.round((steps[at] ?? 0) + often * step);
      }
    }
    return all;
  }

  private static letter(node: NodeModel, time: number): string {
    const state = node.state(time);
    if (state === "ejected") return "x";
    if (state === "drain" || state === "maint") return "d";
    const cpu = node.cpu(time);
    if (cpu === null) return ".";
    return cpu > 0.95 ? "+" : String(Math.min(9, Math.floor(cpu * 10)));
  }

  private eventsAfter(after: number): Json {
    const events = this.events.map(({ at, first = at, ...it }, place) => ({
      number: place + 1,
      at_seconds: NOW + at,
      times: 1,
      first_at_seconds: NOW + first,
      by: null,
      ...it,
    }));
    const behind = events.filter((it) => it.number > after).slice(-100);
    return { since: this.since, newest: events.length, oldest: 1, events: behind };
  }

  private requestsFor(query: URLSearchParams): Answer {
    const id = query.get("id");
    const site = query.get("site");
    const found = this.requests.filter((it) =>
      id === null ? site === null || it["site"] === site : it["id"] === id,
    );
    if (id !== null && found.length === 0)
      return { status: 404, json: { error: `no request ${id} is known` } };
    return { json: { requests: found } };
  }

  private post({ path, query, body }: Asked): Answer | null {
    const [, name, word] = /^\/api\/nodes\/([^/]+)\/(\w+)$/.exec(path) ?? [];
    if (name !== undefined && word !== undefined) {
      const node = this.node(name);
      if (word === "weight") node.weight = (body as { weight: number }).weight;
      else this.setState(node, word === "ready" ? "up" : word);
      return { json: { node: name, state: word, in_flight: 3, warning: null } };
    }
    if (path === "/api/reload") return { json: { ...this.plan, applied: !query.has("dry_run") } };
    const isKnown = /^\/api\/(throttle|release|moves(\/\w+)?)$/.test(path);
    return isKnown ? { json: { throttle: {}, kept: true, note: null } } : null;
  }

  private setState(node: NodeModel, state: string): void {
    const [before, since] = [node.state, this.time];
    node.state = (time) => (time < since ? before(time) : state);
  }
}
