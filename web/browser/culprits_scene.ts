// Reports of a shop before a database, made by a formula, and a front-end that slows a class down when it is asked to.
//
//   activity(class, t) = (1 + noise) x burst(t)            noise depends on its place alone: pictures stay the same
//   part(class, t)     = rate x cost x activity            CPUs
//   used(t)            = min(capacity, sum of parts + background)
//
// Time stands still until a test moves it on.

import type { Cell, Pair, Past, Report, RequestClass, Resource } from "../src/report";
import type { Answer, Asked, Scene } from "./server";
import type { Model, Shop } from "./shops";

/** A Sunday, a bit past three in the morning. */
const NOW = Date.UTC(2026, 2, 8, 3, 12, 30) / 1000;
const SECONDS = 60;
const STEPS = 10;
const ROWS = 2;
const PAST = { steps: 90, seconds: 10, begin: 48 };
const EDGES_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];

interface Held {
  pattern: string;
  rate: number;
  since: number;
  until: number;
}

const CAPACITY = 4;

/** Noise between -1 and 1 that depends on its arguments alone. */
function noise(at: number, salt: number): number {
  const wave = Math.sin(at * 12.9898 + salt * 78.233) * 43_758.5453;
  return 2 * (wave - Math.floor(wave)) - 1;
}

/** The same with a memory. */
function smooth(at: number, salt: number): number {
  return (
    (noise(Math.floor(at / 4), salt) + noise(Math.floor(at / 9), salt + 7) + 0.6 * noise(at, salt + 3)) / 3
  );
}

const round = (value: number) => Number(value.toPrecision(4));

export class CulpritsScene implements Scene {
  /** Seconds since the begin of the scene. */
  time = 0;
  held: Held | null = null;
  /** Why overrides are refused. */
  refusal: string | null = null;

  constructor(readonly shop: Shop) {}

  answer(asked: Asked): Answer | null {
    if (asked.method === "POST") return this.post(asked);
    return asked.path === "/api/culprits" ? { json: this.report() } : null;
  }

  private post({ path, headers, body }: Asked): Answer {
    if (headers["tidegate-override"] === undefined) return { status: 403, json: { error: "not like this" } };
    if (this.refusal !== null) return { status: 400, json: { error: this.refusal } };
    const order = body as { class: string; limits?: { rate?: number }; for_seconds?: number };
    if (path === "/api/release") this.held = null;
    if (path === "/api/throttle" && order.limits?.rate !== undefined) {
      const since = this.to();
      const until = since + (order.for_seconds ?? 3600);
      this.held = { pattern: order.class, rate: order.limits.rate, since, until };
    }
    return { json: { kept: false, note: null } };
  }

  private to(): number {
    return NOW + this.time;
  }

  /** Part of its usual rate that a class has at a time. */
  private slowed(it: Model, at: number): number {
    const { held } = this;
    return held && held.pattern === it.name && at >= held.since ? Math.min(1, held.rate / it.rate) : 1;
  }

  private isFull(at: number): boolean {
    const parts = this.shop.classes.reduce((sum, it) => sum + this.mean(it, at), 0);
    return parts + this.shop.background >= 0.9 * CAPACITY;
  }

  private mean(it: Model, at: number): number {
    return (it.rate * it.costMs * this.slowed(it, at)) / 1000;
  }

  report(): Report {
    const to = this.to();
    const from = to - SECONDS;
    const time = (step: number) => from + step / STEPS;
    const steps = Array.from({ length: SECONDS * STEPS }, (_, step) => step);
    const { classes, background } = this.shop;
    const activity = classes.map((it, salt) =>
      steps.map((step) => Math.max(0, 1 + 0.9 * smooth(step, salt)) * this.slowed(it, time(step))),
    );
    const parts = classes.map((it, at) =>
      (activity[at] ?? []).map((value) => round((value * it.rate * it.costMs) / 1000)),
    );
    const used = steps.map((step) => {
      const sum = parts.reduce((all, part) => all + (part[step] ?? 0), background + 0.1 * noise(step, 99));
      return round(Math.min(CAPACITY, Math.max(0, sum)));
    });
    const accused = (at: number) => classes[at]?.confidence !== undefined;
    const db: Resource = {
      ...this.resource("db1 cpu", "db1", CAPACITY, used),
      parts: parts.flatMap((part, at) =>
        accused(at) ? [{ class: classes[at]?.name ?? "", used: part }] : [],
      ),
      saturated_share: this.isFull(to) ? this.shop.saturated : 0,
    };
    const web = steps.map((step) => round(1.1 + 0.3 * smooth(step, 50)));
    return {
      mode: "live",
      from,
      to,
      requests: Math.round(classes.reduce((sum, it) => sum + it.rate * SECONDS, 0)),
      notes: this.shop.notes ?? [
        "CPU time of n2 is known to 10 ms only, so verdicts take longer and are less sure.",
      ],
      resources: [this.resource("shop cpu", null, 6, web), db],
      classes: classes.map((it, at) => this.requestClass(it, at, activity[at] ?? [], used)),
      heatmap: this.heatmap(from, activity),
      past: [this.past()],
    };
  }

  private resource(name: string, node: string | null, capacity: number, used: number[]): Resource {
    const to = this.to();
    return {
      ...{ name, node, capacity, used, unit: "cores", step_seconds: 1 / STEPS, t0: to - SECONDS, parts: [] },
      ...{ verdict_seconds: 30, basis: this.shop.basis ?? "seen", saturated_share: 0, evaluated_at: to },
    };
  }

  private requestClass(it: Model, salt: number, activity: number[], used: number[]): RequestClass {
    const slow = this.isFull(this.to()) ? 2.4 : 1;
    const rate = it.rate * this.slowed(it, this.to());
    const { held } = this;
    return {
      name: it.name,
      pattern: it.name,
      requests: Math.round(rate * SECONDS),
      per_second: round(rate),
      in_progress: round((rate * it.typicalMs * slow) / 1000),
      p50_ms: round(it.typicalMs * 0.8 * slow),
      p90_ms: round(it.typicalMs * 1.9 * slow),
      p99_ms: round(it.typicalMs * 4.1 * slow),
      max_ms: round(it.typicalMs * 7.3 * slow),
      throttle:
        held?.pattern === it.name
          ? {
              ...{ class: it.name, limits: `rate ${held.rate}`, by: "operator", since: held.since },
              ...{ until: held.until, held: 211, held_ms: 48_000, in_flight: 2, waiting: 5 },
            }
          : null,
      pairs: [this.pair(it, salt, activity, used)],
    };
  }

  private pair(it: Model, salt: number, activity: number[], used: number[]): Pair {
    const known = it.confidence !== undefined;
    const t = known ? 12 - salt : 0.6;
    const shifts = Array.from({ length: 121 }, (_, at) => (at - 60) * 100);
    const height = known ? 0.72 - 0.08 * salt : 0.06;
    return {
      resource: "db1 cpu",
      share: round(this.mean(it, this.to()) / CAPACITY),
      cost_ms: it.costMs > 0 ? it.costMs : null,
      cost_error: known ? round(2 / t) : 0.6,
      cost_low_ms: round(it.costMs * (known ? 1 - 2 / t : 0.4)),
      cost_high_ms: round(it.costMs * (known ? 1 + 2 / t : 1.6)),
      cost_bounded: false,
      least_cost_ms: round(2 + 160 / it.rate),
      lift: round(it.costMs / 3.6),
      ...{ t, z: known ? 11 - salt : 1.1, rm: known ? 3.1 - 0.3 * salt : 0.7 },
      ...{ p: known ? 1e-9 : 0.42, p_adjusted: known ? 4e-8 : 0.9 },
      ...{
        pearson_r: known ? round(0.6 - 0.1 * salt) : round(0.1 * noise(salt, 5)),
        pearson_p: known ? 1e-7 : 0.4,
      },
      confidence: it.confidence ?? null,
      doubtful: it.confidence === "from occupancy",
      ambiguous_with: [],
      named_at: known ? NOW - (PAST.steps - PAST.begin) * PAST.seconds + 25 : null,
      shift_ms: shifts,
      shift_r: shifts.map((shift, at) =>
        round(
          height * Math.exp(-((shift / 350) ** 2)) +
            0.07 * Math.sin(shift / 700 + salt) +
            0.03 * noise(at, salt),
        ),
      ),
      scatter: activity
        .filter((_, step) => step % 2 === 0)
        .map((value, at) => [round((value * it.rate * it.typicalMs) / 1000), used[at * 2] ?? 0]),
      ...it.more,
    };
  }

  private heatmap(t0: number, activity: number[][]) {
    const cells: Cell[] = this.shop.classes.map((it, salt) => ({
      class: it.name,
      counts: Array.from({ length: SECONDS * ROWS }, (_, row) => {
        const slow = this.isFull(t0 + row / ROWS) ? 2.4 : 1;
        const share = activity[salt]?.[(row * STEPS) / ROWS] ?? 1;
        const requests = Math.max(0, Math.round((it.rate / ROWS) * share + noise(row, salt)));
        const counts = Array.from({ length: EDGES_MS.length + 1 }, () => 0);
        for (let one = 0; one < requests; one += 1) {
          const duration = it.typicalMs * slow * Math.exp(0.9 * noise(row * 31 + one, salt + 17));
          const bucket = EDGES_MS.filter((edge) => edge <= duration).length;
          counts[bucket] = (counts[bucket] ?? 0) + 1;
        }
        return counts;
      }),
    }));
    return { t0, step_seconds: 1 / ROWS, edges_ms: EDGES_MS, cells };
  }

  /** The accused classes come after two thirds of the time. */
  private past(): Past {
    const t0 = Math.floor(this.to() / PAST.seconds - PAST.steps) * PAST.seconds;
    const begin = NOW - (PAST.steps - PAST.begin) * PAST.seconds;
    const steps = Array.from({ length: PAST.steps }, (_, step) => t0 + step * PAST.seconds);
    const parts = this.shop.classes
      .map((it, salt) => ({
        class: it.name,
        used: steps.map((at, step) => {
          const come = it.confidence === undefined ? 1 : Math.min(1, Math.max(0.04, (at - begin) / 40));
          return round(this.mean(it, at) * come * (1 + 0.15 * noise(step, salt)));
        }),
      }))
      .sort((a, b) => Math.max(...b.used) - Math.max(...a.used))
      .slice(0, 8);
    const used = steps.map((_, step) => {
      const sum = parts.reduce((all, part) => all + (part.used[step] ?? 0), this.shop.background + 0.2);
      return round(Math.min(CAPACITY, sum));
    });
    return { resource: "db1 cpu", step_seconds: PAST.seconds, t0, used, parts };
  }
}
