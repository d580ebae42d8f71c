// What is different in the selected span: bars, the greatest difference first.

import { byId, choice, make, named, setText } from "./dom";
import { type Change, KINDS, type Kind, differences } from "./difference";
import { amount, milliseconds, seconds } from "./format";
import { swatch } from "./palette";
import type { Actions, State } from "./state";

const BARS_MAX = 12;

const LABELS: Record<Kind, string> = {
  "in progress": "time in progress",
  requests: "requests",
  slower: "duration",
};

const EXPLAINED: Record<Kind, string> = {
  "in progress": "Requests in progress on average, in the span against outside of it.",
  requests: "Requests per second, in the span against outside of it.",
  slower: "Typical (geometric mean) duration, in the span against outside of it.",
};

export class DifferenceView {
  constructor(private readonly actions: Actions) {
    const options = KINDS.map((value) => ({ value, label: LABELS[value] }));
    byId("difference-by").append(
      ...choice("difference", options, "in progress", (value) => actions.compareBy(value as Kind)),
    );
  }

  render(state: State): void {
    const map = state.report?.heatmap ?? null;
    const span = state.span;
    byId("difference").hidden = !map || !span;
    if (!map || !span) return;
    const found = differences(map, span, state.kind, BARS_MAX);
    const most = found.reduce((max, it) => Math.max(max, it.inside, it.outside), 0);
    const list = byId("differences");
    const focused = [...list.querySelectorAll("button")].indexOf(document.activeElement as HTMLButtonElement);
    list.replaceChildren(...found.map((it) => this.item(it, most, state)));
    if (focused >= 0) list.querySelectorAll("button")[focused]?.focus();
    const whole = `${EXPLAINED[state.kind]} Only what stands out from chance (|t| ≥ 3) is listed.`;
    const length = seconds(span.to - span.from);
    setText(byId("difference-note"), found.length ? whole : `No class differs clearly in these ${length}.`);
  }

  private item(it: Change, most: number, state: State): HTMLElement {
    const slot = state.slots.slot(it.name);
    const width = (value: number) => `${most > 0 ? (value / most) * 100 : 0}%`;
    const inside = make("i", "inside");
    const outside = make("i", "outside");
    inside.style.width = width(it.inside);
    outside.style.width = width(it.outside);
    const button = make(
      "button",
      "entry",
      slot === null ? make("span", "swatch none") : swatch(slot),
      named(it.name),
    );
    button.type = "button";
    button.addEventListener("click", () => this.actions.select(it.name));
    const bars = make("span", "bars", inside, outside);
    bars.setAttribute("aria-hidden", "true");
    const text = make("span", "value", make("strong", "", ratio(it)), ` ${values(it, state.kind)}`);
    const item = make("li", it.effect > 0 ? "more" : "less", button, bars, text);
    item.title = `t = ${Number.isFinite(it.t) ? it.t.toFixed(1) : "∞"}`;
    return item;
  }
}

/** How many times as much; a new one has no ratio. */
function ratio(it: Change): string {
  if (it.outside <= 0) return "new";
  if (it.inside <= 0) return "gone";
  const times = it.inside / it.outside;
  return times >= 1 ? `× ${amount(times)}` : `÷ ${amount(1 / times)}`;
}

function values(it: Change, kind: Kind): string {
  const text = kind === "slower" ? milliseconds : amount;
  return `${text(it.inside)} against ${text(it.outside)}`;
}
