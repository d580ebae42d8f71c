// Overrides on a class: from what was typed to what is sent, and the sentences that say it.
//
// The names are those of `POST /api/throttle`: its limits, and for how long.

import { amount, plural, seconds } from "./format";
import type { Maybe } from "./report";

export interface Typed {
  concurrency: string;
  rate: string;
  bandwidth: string;
  queue: string;
  /** Seconds, or empty: until it is released. */
  duration: string;
}

export interface Limits {
  concurrency?: number;
  rate?: number;
  bandwidth?: number;
  queue_seconds?: number;
}

export interface ThrottleOverride {
  class: string;
  limits: Limits;
  for_seconds?: number;
}

/** Bounds of the API: a number outside is refused before it is sent. */
const BOUNDS = {
  concurrency: { low: 1, high: 1e6, what: "Requests at once" },
  rate: { low: 0.001, high: 1e6, what: "Requests per second" },
  bandwidth: { low: 1, high: 2 ** 30, what: "KiB per second" },
  queue: { low: 0.001, high: 86_400, what: "The longest wait in seconds" },
} as const;

function limit(typed: string, name: keyof typeof BOUNDS): number | null {
  if (typed.trim() === "") return null;
  const { low, high, what } = BOUNDS[name];
  const value = Number(typed);
  if (!Number.isFinite(value) || value < low || value > high) {
    throw new RangeError(`${what}: a number from ${low} to ${high.toLocaleString("en")} is needed.`);
  }
  if (name === "concurrency" && !Number.isInteger(value)) {
    throw new RangeError(`${what}: a whole number is needed.`);
  }
  return value;
}

/** The override that was typed; throws a RangeError with a sentence if it makes no sense. */
export function typedOverride(pattern: string, typed: Typed): ThrottleOverride {
  const [concurrency, rate] = [limit(typed.concurrency, "concurrency"), limit(typed.rate, "rate")];
  const [bandwidth, queue] = [limit(typed.bandwidth, "bandwidth"), limit(typed.queue, "queue")];
  if (concurrency === null && rate === null && bandwidth === null) {
    throw new RangeError("Say at least one limit: requests at once, requests per second or bandwidth.");
  }
  if (queue !== null && concurrency === null && rate === null) {
    throw new RangeError("The longest wait needs a limit that makes requests wait: at once, or per second.");
  }
  return {
    class: pattern,
    limits: {
      ...(concurrency !== null && { concurrency }),
      ...(rate !== null && { rate }),
      ...(bandwidth !== null && { bandwidth: Math.round(bandwidth * 1024) }),
      ...(queue !== null && { queue_seconds: queue }),
    },
    ...(typed.duration !== "" && { for_seconds: Number(typed.duration) }),
  };
}

/** What an override does to a class that has so many requests per second, as sentences. */
export function sentences({ limits, for_seconds }: ThrottleOverride, perSecond: Maybe = null): string[] {
  const said: string[] = [];
  if (limits.concurrency !== undefined) {
    const many =
      limits.concurrency === 1
        ? "one of its requests is"
        : `${amount(limits.concurrency)} of its requests are`;
    said.push(`At most ${many} in progress at once; the others wait.`);
  }
  if (limits.rate !== undefined) {
    said.push(`At most ${plural(limits.rate, "request")} per second begin; the others wait.`);
  }
  if (limits.bandwidth !== undefined) {
    said.push(`All its answers share ${amount(limits.bandwidth / 1024)} KiB per second.`);
  }
  if (limits.queue_seconds !== undefined) {
    said.push(`One that has waited ${seconds(limits.queue_seconds)} is answered 429.`);
  } else if (limits.concurrency !== undefined || limits.rate !== undefined) {
    said.push("They wait as long as it takes; none is refused.");
    if (limits.rate !== undefined && perSecond !== null && perSecond > limits.rate) {
      said.push(
        `${amount(perSecond)} are completed per second now: while so many come, each waits longer than the one before it. A longest wait, under “Slow it down”, bounds that.`,
      );
    }
  }
  const until = for_seconds === undefined ? "until it is released" : `for ${seconds(for_seconds)}`;
  said.push(`In force ${until}, at this front-end.`);
  return said;
}
