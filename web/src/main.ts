// The page of culprits. A report that was put into the page is shown as it is; without one the
// front-end is asked for it again and again, for as long as the page is seen.

import { AnswerView } from "./answer_view";
import { Client, NothingYet, TokenError } from "./client";
import { DetailView } from "./detail_view";
import { DifferenceView } from "./difference_view";
import { byId, make, setText } from "./dom";
import { snapped } from "./durations";
import { EffectView } from "./effect_view";
import { clock, printable, seconds } from "./format";
import { HeatView } from "./heat_view";
import { PastView } from "./past_view";
import { isEmpty, parseReport, type Report } from "./report";
import { type Actions, State } from "./state";
import { TableView } from "./table_view";
import { ThrottleView } from "./throttle_view";
import { UseView } from "./use_view";
import { extent } from "./verdict";

const PERIOD_MS = 2500;
const NOTHING_YET = "No data yet: nothing has been found out about classes and resources so far.";

class Page {
  private readonly client = new Client();
  private readonly state = new State();
  private readonly effects = new EffectView();
  private readonly overrides = new ThrottleView(this.client, ({ name, what }) => {
    this.effects.begin(this.state, name, what, this.now());
  });
  private readonly actions: Actions = {
    chooseResource: (name) => this.change(() => this.state.chooseResource(name)),
    select: (name) => this.change(() => this.state.select(name)),
    selectSpan: (span) => {
      const map = this.state.report?.heatmap;
      this.change(() => (this.state.span = span && map ? snapped(map, span) : null));
    },
    sortBy: (sort) => this.change(() => (this.state.sort = sort)),
    filter: (filter, accusedOnly) => this.change(() => Object.assign(this.state, { filter, accusedOnly })),
    compareBy: (kind) => this.change(() => (this.state.kind = kind)),
    showHeatOf: (which) => this.change(() => (this.state.heatOf = which)),
  };
  private readonly detail = new DetailView();
  private readonly views = {
    answer: new AnswerView(this.actions, {
      throttle: (it, perSecond, length) => this.overrides.propose(it, perSecond, length),
      experiment: (name) => this.overrides.experiment(name, "act-answer"),
      release: (name, pattern) => this.overrides.release(name, pattern, "act-answer"),
      change: (it) => {
        this.actions.select(it.name);
        this.overrides.change();
      },
      evidence: (name) => {
        this.actions.select(name);
        this.detail.open();
      },
    }),
    past: new PastView(this.actions),
    use: new UseView(this.actions),
    table: new TableView(this.actions, (name) => this.overrides.experiment(name, "act-answer")),
    detail: this.detail,
    heat: new HeatView(this.actions),
    difference: new DifferenceView(this.actions),
  };
  /** When the last report came, by this machine's clock, which may differ from the report's. */
  private received = 0;
  private timer: ReturnType<typeof setTimeout> | null = null;
  private paused = false;
  /** A button of the mouse is down: a chart that is being dragged on must stay. */
  private pressed = false;
  private waiting: Report | null = null;

  start(): void {
    this.watchColours();
    // No other class may come under the hands of an operator that types an override.
    byId("overrides").addEventListener("focusin", () => this.state.keepSelected());
    const embedded = byId("report").textContent?.trim() ?? "";
    if (embedded) return this.showEmbedded(embedded);
    this.state.live = true;
    document.body.classList.add("live");
    byId("login").addEventListener("submit", (event) => {
      event.preventDefault();
      this.client.token = byId<HTMLInputElement>("token").value;
      void this.poll();
    });
    byId("pause").addEventListener("click", () => this.pause(!this.paused));
    document.addEventListener("visibilitychange", () => this.schedule(0));
    document.addEventListener("pointerdown", () => (this.pressed = true));
    for (const end of ["pointerup", "pointercancel", "blur"]) {
      window.addEventListener(end, () => this.released());
    }
    this.schedule(0);
  }

  private showEmbedded(embedded: string): void {
    try {
      this.take(parseReport(JSON.parse(embedded)));
    } catch (error) {
      this.notice(`The report in this file cannot be read: ${message(error)}.`);
      this.state.report = null;
      byId("found").hidden = true;
    }
  }

  // === live

  private async poll(): Promise<void> {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
    try {
      const report = parseReport(await this.client.report());
      this.received = performance.now();
      byId("login").hidden = true;
      this.notice("");
      if (isEmpty(report)) this.nothing();
      else if (this.pressed) this.waiting = report;
      else this.take(report);
    } catch (error) {
      byId("login").hidden = !(error instanceof TokenError);
      if (error instanceof NothingYet) this.nothing();
      else this.notice(message(error) + (this.state.report ? ": the last report is shown." : ""));
    }
    this.schedule(PERIOD_MS);
  }

  private schedule(after: number): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
    if (this.paused || document.visibilityState === "hidden") return;
    this.timer = setTimeout(() => void this.poll(), after);
  }

  private pause(paused: boolean): void {
    this.paused = paused;
    byId("pause").setAttribute("aria-pressed", String(paused));
    setText(byId("pause"), paused ? "Paused" : "Pause");
    this.schedule(0);
  }

  private released(): void {
    this.pressed = false;
    const report = this.waiting;
    this.waiting = null;
    // After the chart itself has seen the button go up.
    if (report) setTimeout(() => this.take(report), 0);
  }

  /** Now, by the report's clock. */
  private now(): number {
    const since = (performance.now() - this.received) / 1000;
    return (this.state.report?.to ?? 0) + since;
  }

  // === what is shown

  private take(report: Report): void {
    this.state.take(report);
    this.effects.keep(this.state);
    byId("nothing").hidden = true;
    byId("found").hidden = false;
    this.render();
  }

  private nothing(): void {
    byId("nothing").hidden = false;
    byId("found").hidden = true;
    setText(byId("nothing"), NOTHING_YET);
  }

  private notice(text: string): void {
    byId("notice").hidden = !text;
    setText(byId("notice"), printable(text));
  }

  private change(what: () => unknown): void {
    what();
    this.render();
  }

  private render(): void {
    const { report } = this.state;
    if (!report) return;
    const resource = this.state.resource();
    const span = report.to - report.from;
    const window = `${clock(report.from, 1, span)} to ${clock(report.to, 1, span)} (${seconds(span)})`;
    setText(byId("about"), `${this.state.live ? "live" : "offline report"} · ${window} · ${extent(report)}`);
    byId("use").hidden = !resource;
    byId("notes").hidden = report.notes.length === 0;
    byId("notes-list").replaceChildren(...report.notes.map((note) => make("li", "", printable(note))));
    for (const view of Object.values(this.views)) view.render(this.state);
    this.overrides.render(this.state);
    this.effects.render(this.state);
  }

  /** Canvases follow neither the style sheet nor the paper by themselves. On paper all is light and unfolded. */
  private watchColours(): void {
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.render());
    const root = document.documentElement;
    const evidence = byId<HTMLDetailsElement>("evidence-box");
    let unfolded = false;
    window.addEventListener("beforeprint", () => {
      unfolded = evidence.open;
      evidence.open = true;
      root.dataset["paper"] = "";
      this.render();
    });
    window.addEventListener("afterprint", () => {
      delete root.dataset["paper"];
      evidence.open = unfolded;
      this.render();
    });
  }
}

function message(error: unknown): string {
  return error instanceof Error ? error.message.replace(/\.$/, "") : String(error);
}

new Page().start();
