// The side panel: why something is as it is. Sentences first, numbers behind them.

import { byId, make } from "../dom";
import { type Client, NotThere } from "./client";
import { button, show, write } from "./elements";
import type { Topic } from "./hash";
import type { Actions, State } from "./state";
import { type Field, type Request, parseRequests, requestLine, storyOf } from "./why";
import { ago } from "./words";

const REFUSALS_ASKED = 50;

export class PanelView {
  private topic: Topic | null = null;
  private opener: Element | null = null;
  /** Counts what was asked: an answer that comes late is of no use. */
  private asked = 0;

  constructor(
    private readonly client: Client,
    private readonly state: State,
    private readonly actions: Actions,
  ) {
    byId("panel-close").addEventListener("click", () => actions.explain(null));
    byId("panel").addEventListener("keydown", (event) => {
      if (event.key === "Escape") actions.explain(null);
    });
  }

  async open(topic: Topic | null): Promise<void> {
    const panel = byId("panel");
    if (topic === null) {
      this.topic = null;
      show(panel, false);
      document.body.classList.remove("beside");
      if (this.opener instanceof HTMLElement && this.opener.isConnected) this.opener.focus();
      return;
    }
    if (this.topic === null) this.opener = document.activeElement;
    this.topic = topic;
    this.asked += 1;
    const mine = this.asked;
    write(byId("panel-title"), titleOf(topic));
    byId("panel-body").replaceChildren(make("p", "soft", "asking…"));
    show(panel, true);
    document.body.classList.add("beside");
    byId("panel-title").focus();
    const inside = await this.story(topic).catch((error: unknown) => [line(failure(error), "bad")]);
    if (mine !== this.asked) return;
    byId("panel-body").replaceChildren(
      ...inside,
      button("small", "Ask again", () => void this.open(topic)),
    );
  }

  private async story(topic: Topic): Promise<Node[]> {
    switch (topic.kind) {
      case "node":
      case "site":
        return [...(await this.why(topic.name)), ...this.hands(topic)];
      case "refusals":
        return this.refusals(topic.name);
      case "request":
        return this.request(topic.name);
      case "event":
        return this.event(Number(topic.name));
    }
  }

  private async why(name: string): Promise<Node[]> {
    const { sentences, fields } = storyOf(await this.client.get(`/api/why/${encodeURIComponent(name)}`));
    return [...sentences.map((it) => line(it)), numbers(fields)];
  }

  private async refusals(site: string): Promise<Node[]> {
    const path = `/api/requests?wrong&last=${REFUSALS_ASKED}&site=${encodeURIComponent(site)}`;
    const all = parseRequests(await this.client.get(path));
    if (all.length === 0) return [line(`No refused or failed request of ${site} is known any more.`)];
    return [line(`The last ${all.length} requests of ${site} that were refused or failed:`), list(all)];
  }

  private async request(id: string): Promise<Node[]> {
    const all = parseRequests(await this.client.get(`/api/requests?id=${encodeURIComponent(id)}`));
    return all.length ? all.flatMap((it) => requestStory(it)) : [line(`No request ${id} is known any more.`)];
  }

  private async event(number: number): Promise<Node[]> {
    const event = this.state.events.find((it) => it.number === number);
    if (!event) return [line("This event is not known any more.")];
    const now = this.state.seen?.at_seconds ?? event.at_seconds;
    const by = event.by === null ? "" : `, by ${event.by}`;
    const date = new Date(event.at_seconds * 1000).toLocaleString();
    const said = [line(event.text), line(`${ago(now - event.at_seconds)} (${date})${by}`, "soft")];
    const about = event.node ?? event.site;
    if (about === null) return said;
    const heading = make("h3");
    write(heading, `${about} now`);
    const why = await this.why(about).catch((error: unknown) => [line(failure(error), "soft")]);
    return [...said, heading, ...why];
  }

  private hands({ kind, name }: Topic): Node[] {
    if (!this.state.mayAct || kind !== "node") return [];
    const site = this.state.seen?.sites.find((it) => it.nodes.some((one) => one.name === name));
    if (!site) return [];
    return [
      make(
        "p",
        "",
        button("hand", `Act on ${name}…`, () => this.actions.actOnNode(site.name, name)),
      ),
    ];
  }
}

function titleOf({ kind, name }: Topic): string {
  switch (kind) {
    case "node":
    case "site":
      return `Why ${name}`;
    case "refusals":
      return `Refused and failed at ${name}`;
    case "request":
      return `Request ${name}`;
    case "event":
      return "What happened";
  }
}

function line(text: string, kind = ""): HTMLElement {
  const element = make("p", kind);
  write(element, text);
  return element;
}

function failure(error: unknown): string {
  if (error instanceof NotThere) {
    return /no |not /.test(error.message)
      ? error.message
      : "This front-end does not know: it is older than this page.";
  }
  return error instanceof Error ? error.message : String(error);
}

function requestStory(it: Request): Node[] {
  const when = it.seconds_ago === null ? "" : `${ago(it.seconds_ago)}, `;
  return [line(it.sentence || requestLine(it)), line(`${when}request ${it.id}`, "soft"), numbers(it.fields)];
}

function list(all: readonly Request[]): HTMLElement {
  return make("ol", "requests", ...all.map((it) => make("li", "", ...requestStory(it))));
}

function numbers(fields: readonly Field[]): HTMLElement {
  const rows = fields.map(([name, value]) => {
    const [term, what] = [make("dt"), make("dd")];
    write(term, name);
    write(what, value);
    return make("div", "", term, what);
  });
  return make("details", "", make("summary", "", "numbers"), make("dl", "fields", ...rows));
}
