// A site's last 15 minutes: requests with what was lost of them, latencies, the queue and refusals, each
// scaled to its largest value, with a tick for each event.

import { make } from "../dom";
import { HEIGHT, area, line } from "./chart";
import { drawing, setAttribute, show, svg, write } from "./elements";
import { ticks } from "./events";
import { STEPS, added, largest, sum } from "./history";
import type { History, SiteHistory } from "./history";
import { type Site, total } from "./overview";
import type { State } from "./state";
import { ago, count, reason, time } from "./words";

const REASONS_NAMED = 3;

/** One chart: a title, what it is now and at most, and two lists of numbers. */
class Chart {
  private readonly first: SVGElement;
  private readonly second: SVGElement;
  private readonly now = make("b");
  private readonly most = make("span", "soft");
  private readonly ticks = make("div", "ticks");
  private readonly picture: HTMLElement;
  readonly element: HTMLElement;

  constructor(title: string, kinds: [string, string]) {
    this.first = svg("path", kinds[0]);
    this.second = svg("path", kinds[1]);
    this.ticks.setAttribute("aria-hidden", "true");
    this.picture = make("div", "picture", drawing(STEPS, HEIGHT, "", this.first, this.second), this.ticks);
    this.picture.setAttribute("role", "img");
    this.element = make(
      "figure",
      "",
      make("figcaption", "", make("span", "soft", title), " ", this.now, " ", this.most),
      this.picture,
    );
  }

  set(first: string, second: string, most: string): void {
    setAttribute(this.first, "d", first);
    setAttribute(this.second, "d", second);
    write(this.most, most);
  }

  /** What it is now, which no step of the past has yet. */
  setNow(now: string): void {
    write(this.now, now);
    setAttribute(this.picture, "aria-label", (this.element.firstElementChild?.textContent ?? "").trim());
  }

  setTicks(marks: readonly HTMLElement[]): void {
    this.ticks.replaceChildren(...marks);
  }
}

export class ChartsView {
  private readonly requests = new Chart("requests/s", ["area", "lost"]);
  private readonly latency = new Chart("p99", ["line", "faint"]);
  private readonly queue = new Chart("waiting for room", ["area", "lost"]);
  private readonly refusals = new Chart("refused or failed/s", ["lost", "none"]);
  private readonly all = [this.requests, this.latency, this.queue, this.refusals];
  private readonly reasons = make("span", "bad");
  private readonly ends = make(
    "p",
    "ends soft small",
    make("span", "", "15 min ago"),
    this.reasons,
    make("span", "", "now"),
  );
  readonly element = make(
    "div",
    "past",
    make("div", "charts", ...this.all.map((it) => it.element)),
    this.ends,
  );
  private drawn: History | null = null;
  private events: unknown = null;

  constructor(private readonly site: string) {}

  update(site: Site, state: State): void {
    const own = state.siteHistory(site.name);
    show(this.element, own !== null);
    if (!own || !state.history) return;
    const isNew = this.drawn !== state.history;
    if (isNew) this.draw(own);
    this.writeNow(site);
    if (isNew || this.events !== state.events) this.drawTicks(state, state.history);
    this.drawn = state.history;
    this.events = state.events;
  }

  private draw(own: SiteHistory): void {
    const lost = added(own.refused_per_second, own.errors_per_second);
    const most = largest(own.requests_per_second, lost);
    this.requests.set(area(own.requests_per_second, most), area(lost, most), upTo(count(most)));
    const slowest = largest(own.p99_seconds);
    this.latency.set(
      line(own.p99_seconds, slowest),
      line(own.p50_seconds, slowest),
      `${upTo(slowest > 0 ? time(slowest) : "0")}; p50 dashed`,
    );
    const longest = largest(own.queued);
    this.queue.set(area(own.queued, longest), "", upTo(count(longest)));
    const worst = largest(lost);
    write(this.reasons, reasons(own));
    this.refusals.set(area(lost, worst), "", upTo(count(worst)));
  }

  private writeNow(site: Site): void {
    this.requests.setNow(count(site.requests_per_second));
    this.latency.setNow(time(site.p99_seconds));
    this.queue.setNow(count(site.queued));
    this.refusals.setNow(count(total(site.refused) + total(site.errors)));
  }

  private drawTicks(state: State, history: History): void {
    const to = history.end_seconds;
    const own = ticks(state.events, this.site, to - STEPS * history.step_seconds, to);
    const now = state.seen?.at_seconds ?? to;
    for (const chart of this.all) {
      chart.setTicks(
        own.map(({ at, place, event }) => {
          const mark = make("i", event.level);
          mark.style.left = `${Math.round(place * 1000) / 10}%`;
          mark.title = `${ago(now - at)}: ${event.text}`;
          return mark;
        }),
      );
    }
  }
}

const upTo = (most: string) => (most === "0" ? "none in 15 min" : `up to ${most}`);

/** `9,100 no room, 1,380 queue timeout in 15 min`. */
function reasons(own: SiteHistory): string {
  const all = Object.entries(own.reasons)
    .map(([code, steps]) => [code, sum(steps)] as const)
    .sort((one, other) => other[1] - one[1]);
  if (all.length === 0) return "";
  const named = all.slice(0, REASONS_NAMED).map(([code, often]) => `${count(often)} ${reason(code)}`);
  return `lost in 15 min: ${named.join(", ")}`;
}
