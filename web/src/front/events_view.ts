// The list of events, newest first, and its filters.

import { byId, make } from "../dom";
import { button, show, write } from "./elements";
import { EVENT_LEVELS, EVERY_LEVEL, type Event, choices, filtered } from "./events";
import type { Actions, State } from "./state";
import { ago, kindWord, span } from "./words";

/** Most events in the list; the filters reach the others. */
const LISTED_MAX = 60;
const MARKS = { bad: "✕", warn: "!", good: "✓", note: "·" } as const;

interface Item {
  element: HTMLElement;
  ago: HTMLElement;
}

export class EventsView {
  private readonly items = new Map<Event, Item>();
  private readonly selects = {
    level: byId<HTMLSelectElement>("events-level"),
    kind: byId<HTMLSelectElement>("events-kind"),
    site: byId<HTMLSelectElement>("events-site"),
  };
  private drawn: readonly Event[] | null = null;
  private isKnown = true;
  private order: Event[] = [];

  constructor(
    private readonly state: State,
    private readonly actions: Actions,
  ) {
    for (const [name, select] of Object.entries(this.selects)) {
      select.addEventListener("change", () => {
        state.eventFilter = { ...state.eventFilter, [name]: select.value };
        this.drawn = null;
        this.update(true);
      });
    }
  }

  /** `isKnown`: the front-end has events at all. */
  update(isKnown: boolean): void {
    const { events, seen } = this.state;
    if (this.drawn !== events || this.isKnown !== isKnown) this.draw(isKnown);
    const now = seen?.at_seconds ?? 0;
    for (const event of this.order) {
      const item = this.items.get(event);
      if (item) write(item.ago, ago(Math.max(0, now - event.at_seconds)));
    }
  }

  private draw(isKnown: boolean): void {
    const { events, eventFilter } = this.state;
    this.drawn = events;
    this.isKnown = isKnown;
    const { kinds, sites } = choices(events);
    offer(this.selects.level, "what matters", [EVERY_LEVEL, ...EVENT_LEVELS], eventFilter.level);
    offer(this.selects.kind, "every kind", kinds, eventFilter.kind);
    offer(this.selects.site, "every site", sites, eventFilter.site);
    const fits = filtered(events, eventFilter);
    this.order = fits.slice(0, LISTED_MAX);
    const stay = new Set(this.order);
    for (const event of this.items.keys()) if (!stay.has(event)) this.items.delete(event);
    const elements = this.order.map((event) => {
      const item = this.items.get(event) ?? this.item(event);
      this.items.set(event, item);
      return item.element;
    });
    byId("events-list").replaceChildren(...elements);
    const note = !isKnown
      ? "This front-end keeps no events: it is older than this page."
      : events.length === 0
        ? "Nothing has happened yet."
        : fits.length === 0
          ? "No event fits."
          : fits.length > LISTED_MAX
            ? `The newest ${LISTED_MAX} of ${fits.length}.`
            : "";
    show(byId("events-note"), note !== "");
    write(byId("events-note"), note);
  }

  private item(event: Event): Item {
    const when = make("span", "soft");
    const open = () => this.actions.explain({ kind: "event", name: String(event.number) });
    const text = button("link", "", open);
    write(text, event.text);
    const mark = make("span", `mark ${event.level}`, MARKS[event.level]);
    mark.title = event.level;
    const what = [kindWord(event.kind), event.site, event.by && `by ${event.by}`];
    const about = make("span", "soft");
    if (event.times > 1) {
      const lasted = event.at_seconds - event.first_at_seconds;
      what.unshift(`${event.times} times${lasted >= 1 ? ` in ${span(lasted)}` : ""}`);
    }
    write(about, ` · ${what.filter(Boolean).join(" · ")}`);
    const element = make("li", event.level, mark, make("div", "", text, make("div", "small", when, about)));
    return { element, ago: when };
  }
}

function offer(select: HTMLSelectElement, all: string, values: readonly string[], chosen: string): void {
  const wanted = ["", ...(chosen && !values.includes(chosen) ? [chosen] : []), ...values];
  const offered = [...select.options].map((it) => it.value);
  if (wanted.join("\n") !== offered.join("\n") || select.options.length === 0) {
    const options = wanted.map((value) => {
      const option = make("option");
      option.value = value;
      write(option, value === "" ? all : kindWord(value));
      return option;
    });
    select.replaceChildren(...options);
  }
  if (select.value !== chosen) select.value = chosen;
}
