// What is shown now, and what people can do about it.

import { type Span, snapped } from "./durations";
import { Slots } from "./slots";
import { type Report, type RequestClass, type Resource, pairOf } from "./report";
import type { Kind } from "./difference";
import type { Sort } from "./rows";
import { LAYERS_MAX, stack } from "./stack";

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
  sort: Sort = { key: "share", descending: true };
  filter = "";
  accusedOnly = false;
  kind: Kind = "in progress";
  heatOf: HeatOf = "all";
  /** Whether overrides can be given. */
  live = false;
  readonly slots = new Slots();
  /** Whether the selected class stays, whoever else is accused: somebody has chosen it. */
  private chosen = false;
  private resourceName: string | null = null;

  take(report: Report): void {
    this.report = report;
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

  /** Somebody works on the selected class. */
  keepSelected(): void {
    this.chosen = true;
  }

  chooseResource(name: string): void {
    this.resourceName = name;
    this.assignColours();
  }

  /** The selected resource, by default the first. */
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
    const names = [...layers.map((layer) => layer.name), ...accused.map((it) => it.name)];
    this.slots.assign([...new Set(names)].slice(0, 4 * LAYERS_MAX));
  }

  /** The class with the greatest share, those that are accused before all others. */
  private firstClass(): string | null {
    const name = this.resource()?.name ?? null;
    const accused = (it: RequestClass) => (pairOf(it, name)?.confidence != null ? 1 : 0);
    const share = (it: RequestClass) => pairOf(it, name)?.share ?? -1;
    const all = [...(this.report?.classes ?? [])];
    return all.sort((a, b) => accused(b) - accused(a) || share(b) - share(a))[0]?.name ?? null;
  }
}
