// One node as a row: its last 15 minutes, its load and how old that is, its share, and what it answers.

import { make } from "../dom";
import { percent } from "../format";
import { STRIP_HEIGHT, STRIP_KINDS, type StripKind, stripPaths, stripSentence } from "./chart";
import { Bar, button, drawing, setAttribute, setClass, show, svg, write } from "./elements";
import { STEPS, STEP_S } from "./history";
import type { Node } from "./overview";
import { type Ranked, complaints, isOverloaded } from "./rank";
import type { Actions, State } from "./state";
import { count, plural, readSentence, reason, shareSentence, tasksSentence, time } from "./words";

/** Head, meaning and class of each column. */
const COLUMNS = [
  ["node", "name and state; a click says why it gets what it gets", "node"],
  ["last 15 min", "used CPUs, ten seconds a stroke", "past"],
  ["load now", "used CPUs, tasks that run or wait, and when and how that was read", "load"],
  ["share", "its part in the site's answers; the mark is what its neighbours have", "share"],
  ["req/s", "answers per second", "number"],
  ["p50", "median time to the response head", "number"],
  ["p99", "of a hundred, one takes longer", "number"],
  ["errors/s", "server errors and failures per second", "number"],
  ["in flight", "requests in flight from this front-end", "number"],
  ["weight", "what policies go by", "number"],
] as const;
const MARKS = { bad: "✕ ", warn: "! ", note: "", good: "" } as const;

export function tableHead(): HTMLElement {
  const row = make("tr");
  for (const [label, what, kind] of COLUMNS) {
    const cell = make("th", kind, label);
    cell.scope = "col";
    cell.title = what;
    row.append(cell);
  }
  const last = make("th", "hands", make("span", "away", "act"));
  last.scope = "col";
  row.append(last);
  return make("thead", "", row);
}

/** A node's load over the last 15 minutes. */
class Strip {
  private readonly paths = STRIP_KINDS.map((kind) => [kind, svg("path", kind)] as const);
  readonly element = make(
    "div",
    "strip",
    drawing(STEPS, STRIP_HEIGHT, "", ...this.paths.map(([, it]) => it)),
  );
  private load: string | null = null;

  constructor() {
    this.element.setAttribute("role", "img");
  }

  set(load: string): void {
    if (this.load === load) return;
    this.load = load;
    const paths: Record<StripKind, string> = stripPaths(load);
    for (const [kind, path] of this.paths) setAttribute(path, "d", paths[kind]);
    const sentence = stripSentence(load, STEP_S);
    this.element.setAttribute("aria-label", sentence);
    this.element.title = sentence;
  }
}

export class RowView {
  readonly element = make("tr");
  private readonly name: HTMLButtonElement;
  private readonly state = make("span");
  private readonly strip = new Strip();
  private readonly complaint = make("span", "complaint");
  private readonly cpu = make("span");
  private readonly cpuBar = new Bar();
  private readonly tasks = make("span", "soft");
  private readonly load = make("span", "line", this.cpu, this.cpuBar.element, this.tasks);
  private readonly read = make("span", "soft small");
  private readonly share = make("span");
  private readonly shareBar = new Bar();
  private readonly others = make("span", "soft small");
  private readonly numbers = [4, 5, 6, 7, 8, 9].map((at) => {
    const cell = make("td", "number");
    cell.dataset["label"] = COLUMNS[at]?.[0] ?? "";
    return cell;
  });
  private readonly act: HTMLButtonElement;

  constructor(site: string, node: string, actions: Actions) {
    this.element.dataset["node"] = node;
    this.name = button("link name", node, () => actions.explain({ kind: "node", name: node }));
    this.act = button("hand small", "Act…", () => actions.actOnNode(site, node));
    this.act.setAttribute("aria-label", `Act on ${node}…`);
    const head = make("th", "node", this.name, this.state);
    head.scope = "row";
    const cell = (kind: string, label: string, ...inside: Node_[]) => {
      const element = make("td", kind, ...inside);
      element.dataset["label"] = label;
      return element;
    };
    this.element.append(
      head,
      cell("past", "last 15 min", this.strip.element, this.complaint),
      cell("load", "load now", this.load, this.read),
      cell("share", "share", make("span", "line", this.share, this.shareBar.element), this.others),
      ...this.numbers,
      cell("hands", "", this.act),
    );
  }

  update(ranked: Ranked, others: number | null, state: State): void {
    const { node, level } = ranked;
    setClass(this.element, level);
    write(this.state, `${MARKS[level]}${reason(node.state)}`);
    setClass(this.state, `state ${level}`);
    this.strip.set(state.nodeHistory(node.name)?.load ?? "");
    const said = complaints(ranked).join("; ");
    write(this.complaint, said === reason(node.state) ? "" : said);
    setAttribute(this.complaint, "title", node.note ?? "");
    this.updateLoad(node);
    write(this.share, percent(node.share));
    this.shareBar.set(node.share, others);
    setAttribute(this.shareBar.element, "title", shareSentence(node.share, others));
    write(this.others, others === null ? "" : `neighbours ${percent(others)}`);
    const { rate, p50, p99, errors, in_flight, weight } = node;
    const numbers = [count(rate), time(p50), time(p99), count(errors), count(in_flight), count(weight)];
    this.numbers.forEach((cell, at) => write(cell, numbers[at] ?? ""));
    if (this.numbers[3]) setClass(this.numbers[3], errors > 0 ? "number bad" : "number");
    show(this.act, state.mayAct);
  }

  private updateLoad(node: Node): void {
    const isKnown = node.cpu !== null || node.tasks !== null;
    if (this.load.hidden === isKnown) this.load.hidden = !isKnown;
    write(this.cpu, node.cpu === null ? "" : `CPU ${percent(node.cpu)}`);
    this.cpuBar.set(node.cpu, null, isOverloaded(node) ? "over" : "");
    write(this.tasks, node.tasks === null ? "" : tasksSentence(node));
    write(this.read, readSentence(node));
    setAttribute(this.read, "title", `${plural(node.in_flight, "request")} in flight from here`);
  }
}

type Node_ = globalThis.Node;
