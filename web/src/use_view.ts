// Use of the selected resource over time, stacked by class, with its legend.

import { ChartBox, dragging, shadeOutside } from "./chart";
import { byId, choice, make, named, setText } from "./dom";
import type { Span } from "./durations";
import { amount, clock, percent, printable } from "./format";
import { cssColour, swatch } from "./palette";
import type { Report, Resource } from "./report";
import { type Layer, coarse, stack } from "./stack";
import { stackOptions } from "./stack_chart";
import type { Actions, State } from "./state";
import { useShare } from "./use";

/** More steps than that are a thicket. */
const STEPS_DRAWN = 160;

export class UseView {
  private readonly chart = new ChartBox(byId("use-chart"), 260);
  private span: Span | null = null;
  private shownResources = "";
  private shownLegend = "";

  constructor(private readonly actions: Actions) {}

  render(state: State): void {
    this.span = state.span;
    const report = state.report;
    const resource = state.resource();
    if (!report || !resource) return;
    this.choices(report, resource);
    const layers = stack(resource);
    const slot = (layer: Layer) => (layer.kind === "class" ? state.slots.slot(layer.name) : null);
    this.legend(resource, layers, slot, state.selected);
    const says = `${resource.name} over time, stacked by class: ${layers
      .map((layer) => `${printable(layer.name)} ${percent(layer.share)}`)
      .join(", ")}; capacity ${amount(resource.capacity)} ${resource.unit}`;
    const drawn = coarse(resource, STEPS_DRAWN);
    this.chart.draw(says, () => {
      const drag = dragging(this.actions.selectSpan);
      const { hooks, ...options } = stackOptions(drawn, stack(drawn), slot, (plot) =>
        shadeOutside(plot, this.span),
      );
      return { ...drag, ...options, hooks: { ...drag.hooks, ...hooks } };
    });
  }

  /** Resources to choose from, made anew only when there are others: a focus stays where it is. */
  private choices(report: Report, resource: Resource): void {
    const box = byId("resources");
    const names = JSON.stringify(report.resources.map((it) => it.name));
    if (names !== this.shownResources) {
      this.shownResources = names;
      const options = report.resources.map((it) => {
        const label = make("span", "resource", make("bdi", "", printable(it.name)));
        if (it.node) label.title = `of ${printable(it.node)}`;
        label.append(make("span", "soft use"));
        return { value: it.name, label };
      });
      box.replaceChildren(...choice("resource", options, resource.name, this.actions.chooseResource));
    }
    const labels = [...box.querySelectorAll(".use")];
    report.resources.forEach((it, index) => {
      const label = labels[index];
      if (label) setText(label, percent(useShare(it)));
    });
    for (const input of box.querySelectorAll("input")) input.checked = input.value === resource.name;
  }

  private legend(
    resource: Resource,
    layers: readonly Layer[],
    slot: (layer: Layer) => number | null,
    selected: string | null,
  ): void {
    const from = clock(resource.t0, 1);
    const to = clock(resource.t0 + resource.used.length * resource.step_seconds, 1);
    const saturated = resource.saturated_share;
    const full = saturated !== null && saturated > 0 ? `; full ${percent(saturated)} of the time` : "";
    setText(
      byId("use-note"),
      `Mean shares of the capacity from ${from} to ${to}${full}. Parts are estimates.`,
    );
    const items = [...layers].reverse().map((layer) => {
      const share = make("span", "value", percent(layer.share));
      if (layer.kind !== "class") {
        return make("li", "", make("span", "entry", swatch(null), make("span", "name", layer.name), share));
      }
      const button = make("button", "entry", swatch(slot(layer)), named(layer.name), share);
      button.type = "button";
      button.setAttribute("aria-pressed", String(layer.name === selected));
      button.addEventListener("click", () => this.actions.select(layer.name));
      return make("li", "", button);
    });
    const shown = JSON.stringify([
      resource.name,
      selected,
      // Samples are painted in the colours of light or dark.
      cssColour("card"),
      ...layers.map((it) => [it.name, slot(it), percent(it.share)]),
    ]);
    if (shown === this.shownLegend) return;
    this.shownLegend = shown;
    const list = byId("use-legend");
    const focused = [...list.querySelectorAll("button")].indexOf(document.activeElement as HTMLButtonElement);
    list.replaceChildren(...items);
    if (focused >= 0) list.querySelectorAll("button")[focused]?.focus();
  }
}
