// What is shown now, and what people can do about it.

import { type Span, snapped } from "./durations";
import { Slots } from "./slots";
import { accusedOf, rank } from "./claim";
import { type Report, type RequestClass, type Resource, pairOf } from "./report";
import type { Kind } from "./difference";
import type { Sort } from "./rows";
import { pastOf } from "./past";
import { LAYERS_MAX, stack } from "./stack";
import { isRate, useShare } from "./use";

export interface Actions {
  chooseResource(name: string): void;
  select(name: string): void;
  selectSpan(span: Span | null): void;
  sortBy(sort: Sort): void;
  filter(text: string, accusedOnly: boolean): void;
  compareBy(kind: Kind): void;
  showHeatOf(which: HeatOf): void;
}

export type HeatOf = "all" | "selected";

export class State {
  report: Report | null = null;
  selected: string | null = null;
  span: Span | null = null;
  sort: Sort = { key: "verdict", descending: true };
  filter = "";
  accusedOnly = false;
  kind: Kind = "in progress";
  heatOf: HeatOf = "all";
  /** Whether overrides can be given. */
  live = false;
  readonly slots = new Slots();
  /** Whether the selected class stays, whatever else is accused: the operator has chosen it. */
  private chosen = false;
  private resourceName: string | null = null;
  /** Whether the operator has chosen the resource. */
  private resourceChosen = false;

  take(report: Report): void {
    this.report = report;
    this.findResource();
    this.assignColours();
    const selected = report.classes.some((it) => it.name === this.selected);
    if (!selected || !this.chosen) this.selected = this.firstClass();
    // A span that has left the window, in a live report, is over.
    if (this.span && report.heatmap) this.span = snapped(report.heatmap, this.span);
  }

  select(name: string): void {
    this.selected = name;
    this.chosen = true;
  }

  /** The operator works on the selected class. */
  keepSelected(): void {
    this.chosen = true;
  }

  chooseResource(name: string): void {
    this.resourceName = name;
    this.resourceChosen = true;
    this.assignColours();
  }

  /**
   * Unless one was chosen: that of the surest verdict, then the fullest. One that is shown stays until another has a
   * surer verdict, or the page would change under the reader's eyes.
   */
  private findResource(): void {
    const { report } = this;
    const all = report?.resources ?? [];
    const shown = all.find((it) => it.name === this.resourceName);
    if (!report || (shown && this.resourceChosen)) return;
    const degree = (it: Resource) => accusedOf(report.classes, it)[0]?.claim.degree ?? 0;
    const use = (it: Resource) => (isRate(it) ? -1 : (useShare(it) ?? -1));
    const [best] = [...all].sort((a, b) => degree(b) - degree(a) || use(b) - use(a));
    if (best && (!shown || degree(best) > degree(shown))) this.resourceName = best.name;
  }

  /** The selected resource. */
  resource(): Resource | null {
    const all = this.report?.resources ?? [];
    return all.find((it) => it.name === this.resourceName) ?? all[0] ?? null;
  }

  class(): RequestClass | null {
    return this.report?.classes.find((it) => it.name === this.selected) ?? null;
  }

  /** Classes with a layer of their own have colours, and all that are accused. */
  private assignColours(): void {
    const resource = this.resource();
    if (!this.report || !resource) return;
    const layers = stack(resource).filter((layer) => layer.kind === "class");
    const accused = this.report.classes.filter((it) => pairOf(it, resource.name)?.confidence != null);
    const past = pastOf(this.report, resource)?.parts.slice(0, LAYERS_MAX) ?? [];
    const names = [...layers, ...accused].map((it) => it.name).concat(past.map((part) => part.class));
    this.slots.assign([...new Set(names)].slice(0, 4 * LAYERS_MAX));
  }

  /** The class of the first rank, which the sentence is about. */
  private firstClass(): string | null {
    const resource = this.resource();
    const of = (it: RequestClass) => rank(pairOf(it, resource?.name ?? null), resource);
    const all = [...(this.report?.classes ?? [])];
    return all.sort((a, b) => of(b) - of(a) || (a.name < b.name ? -1 : 1))[0]?.name ?? null;
  }
}
