// What classes took of a resource over the last 15 minutes: from the report's steps to what is shown.
//
//   now      the last step
//   before   the last known step that is five minutes and more before it; null where that was not known
//   most     the greatest step, and when it ended
//
// A step is the mean over the verdicts' window before its end (30 s), so a change shows within that time.

import type { Maybe, Past, Report, Resource } from "./report";

export const BEFORE_SECONDS = 300;

export interface PastRow {
  name: string;
  now: Maybe;
  before: Maybe;
  most: Maybe;
  /** Unix seconds. */
  mostAt: Maybe;
}

export function pastOf(report: Report, resource: Resource): Past | null {
  const past = report.past.find((it) => it.resource === resource.name);
  return past && past.used.length > 1 ? past : null;
}

/** The same as a resource has it, for the same picture. */
export function asResource(past: Past, resource: Resource): Resource {
  return {
    ...resource,
    // A mean over what was before stands where it ends.
    t0: past.t0 + past.step_seconds,
    step_seconds: past.step_seconds,
    used: past.used,
    parts: past.parts,
  };
}

/** A row for each class, those that took most first. */
export function pastRows(past: Past): PastRow[] {
  const last = past.used.findLastIndex((value) => value !== null);
  const back = Math.round(BEFORE_SECONDS / past.step_seconds);
  return past.parts.map(({ class: name, used }) => {
    const before = used.slice(0, Math.max(0, last - back + 1)).findLast((value) => value !== null);
    let at = -1;
    used.forEach((value, step) => {
      if (value !== null && (at < 0 || value > (used[at] ?? 0))) at = step;
    });
    return {
      name,
      now: used[last] ?? null,
      before: before ?? null,
      most: used[at] ?? null,
      mostAt: at < 0 ? null : past.t0 + (at + 1) * past.step_seconds,
    };
  });
}
