// Small reports for the tests.

import { type Pair, type Report, type RequestClass, type Resource, parseReport } from "../src/report";

export const pair = (fields: Partial<Pair> = {}): Partial<Pair> => ({ resource: "db cpu", ...fields });

export function requestClass(
  name: string,
  pairs: Partial<Pair>[] = [],
  fields: Partial<RequestClass> = {},
): Record<string, unknown> {
  return { name, requests: 10, per_second: 1, pairs, ...fields };
}

export function resource(fields: Partial<Resource> = {}): Record<string, unknown> {
  return {
    name: "db cpu",
    node: "db1",
    capacity: 4,
    unit: "cores",
    step_seconds: 1,
    t0: 100,
    used: [],
    ...fields,
  };
}

export interface Wanted {
  resources?: Record<string, unknown>[];
  classes?: Record<string, unknown>[];
  heatmap?: Record<string, unknown> | null;
  to?: number;
}

export function report(wanted: Wanted = {}): Report {
  const { resources = [resource()], classes = [], heatmap = null, to = 160 } = wanted;
  return parseReport({
    mode: "live",
    from: to - 60,
    to,
    requests: 100,
    notes: [],
    resources,
    classes,
    heatmap,
  });
}
