// The state in one sentence, what else is wrong, and the figures of the front-end itself.

import { byId, make } from "../dom";
import { setClass, show, write } from "./elements";
import { type Level, type Overview, total } from "./overview";
import { aboutSentence, count, readerSentence, sinceStart, time } from "./words";

const MARKS: Record<Level, string> = { good: "", warn: "Warning: ", bad: "Wrong: " };
const TITLES: Record<Level, string> = { good: "", warn: "! ", bad: "✕ " };

type Figure = [name: string, value: string, level: "" | "bad"];

function figures(seen: Overview): Figure[] {
  const { recent } = seen;
  const refused = seen.sites.reduce((sum, site) => sum + total(site.refused), 0);
  return [
    ["requests/s", count(recent.requests_per_second), ""],
    ["refused/s", count(refused), refused > 0 ? "bad" : ""],
    ["errors/s", count(recent.errors_per_second), recent.errors_per_second > 0 ? "bad" : ""],
    ["latency p50", time(recent.p50_seconds), ""],
    ["latency p99", time(recent.p99_seconds), ""],
    [
      "loads read, p99",
      seen.load_age_p99_seconds === null ? "–" : `${time(seen.load_age_p99_seconds)} ago`,
      "",
    ],
    ["in flight / connections", `${count(seen.in_flight)} / ${count(seen.connections)}`, ""],
  ];
}

export class HeadlineView {
  private readonly cells = new Map<string, HTMLElement>();
  private others = "";

  update(seen: Overview): void {
    const { headline } = seen;
    show(byId("headline"), true);
    setClass(byId("headline"), headline.level);
    setClass(byId("worst"), headline.level);
    write(byId("worst"), MARKS[headline.level] + headline.text);
    const title = `${TITLES[headline.level]}Tidegate`;
    if (document.title !== title) document.title = title;
    this.updateOthers(seen);
    const state = seen.draining ? "draining" : seen.ready ? "ready" : "not ready";
    write(byId("state"), state);
    setClass(byId("state"), `state ${seen.draining ? "warn" : seen.ready ? "soft" : "bad"}`);
    write(byId("about"), aboutSentence(seen));
    write(byId("reader"), readerSentence(seen));
    write(byId("since-start"), sinceStart(seen));
    for (const [name, value, level] of figures(seen)) this.figure(name, value, level);
  }

  private updateOthers({ headline }: Overview): void {
    show(byId("wrong"), headline.others.length > 0);
    write(byId("more"), `and ${headline.others.length} more`);
    const lines = headline.others.map((it) => MARKS[it.level] + it.text);
    const text = lines.join("\n");
    // Only what has changed is written: screen readers say it again.
    if (text === this.others) return;
    this.others = text;
    const items = headline.others.map((it, at) => {
      const item = make("li", it.level);
      write(item, lines[at] ?? "");
      return item;
    });
    byId("others").replaceChildren(...items);
  }

  private figure(name: string, value: string, level: string): void {
    let cell = this.cells.get(name);
    if (!cell) {
      cell = make("dd");
      this.cells.set(name, cell);
      byId("figures").append(make("div", "", make("dt", "", name), cell));
    }
    write(cell, value);
    setClass(cell, level);
  }
}
