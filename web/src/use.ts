// How much of a resource is used, and what that does to requests.
//
//   full      it was full for 10 % of the verdicts' window and more, or 90 % of it are used: all others wait
//   busy      70 % and more are used: others begin to wait
//   room      less: others hardly wait
//   idle      less than 10 %: no class is looked for
//   unknown   nothing was read, or it has no capacity

import { type Maybe, type Resource, mean } from "./report";

export type Press = "full" | "busy" | "room" | "idle" | "unknown";

const FULL = { saturated: 0.1, used: 0.9 };
const BUSY = 0.7;
const IDLE = 0.1;

/** A rate has no capacity that could be shared out. */
export function isRate(resource: Resource): boolean {
  return resource.unit === "per second";
}

/** Mean use of the resource as a share of its capacity, over all that is shown. */
export function useShare(resource: Resource): Maybe {
  const used = mean(resource.used);
  return used === null ? null : used / resource.capacity;
}

/** The same over the window that verdicts rest on, so that it can be compared with their shares. */
export function useOfVerdicts(resource: Resource): Maybe {
  const { evaluated_at, verdict_seconds, t0, step_seconds } = resource;
  if (evaluated_at === null || verdict_seconds === null) return useShare(resource);
  const within = resource.used.filter((_, step) => {
    const middle = t0 + (step + 0.5) * step_seconds;
    return middle >= evaluated_at - verdict_seconds && middle < evaluated_at;
  });
  const used = mean(within);
  return used === null ? useShare(resource) : used / resource.capacity;
}

/** The same over the last seconds. */
export function useOfLast(resource: Resource, seconds: number): Maybe {
  const used = mean(resource.used.slice(-Math.max(1, Math.round(seconds / resource.step_seconds))));
  return used === null ? null : used / resource.capacity;
}

export function press(resource: Resource): Press {
  const used = useOfVerdicts(resource);
  if (used === null || isRate(resource)) return "unknown";
  if ((resource.saturated_share ?? 0) >= FULL.saturated || used >= FULL.used) return "full";
  if (used >= BUSY) return "busy";
  return used < IDLE ? "idle" : "room";
}
