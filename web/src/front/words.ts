// Numbers and states as an operator reads them.

import type { Maybe } from "../reader";
import { UNKNOWN, percent } from "../format";
import { EVERY_LEVEL } from "./events";
import type { Node, Overview } from "./overview";

/** A duration of a request or the age of a record. */
export function time(seconds: Maybe): string {
  if (seconds === null) return UNKNOWN;
  if (seconds < 1e-3) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 0.0995) return `${(seconds * 1e3).toFixed(1)} ms`;
  if (seconds < 1) return `${Math.round(seconds * 1e3)} ms`;
  return seconds < 99.95 ? `${seconds.toFixed(1)} s` : span(seconds);
}

/** A span in whole seconds, with two units at most. */
export function span(seconds: number): string {
  const days = Math.floor(seconds / 86_400);
  const hours = Math.floor(seconds / 3600) % 24;
  const minutes = Math.floor(seconds / 60) % 60;
  const rest = Math.floor(seconds) % 60;
  const two = (large: string, small: number, unit: string) => (small ? `${large} ${small} ${unit}` : large);
  if (days) return two(`${days} d`, hours, "h");
  if (hours) return two(`${hours} h`, minutes, "min");
  return minutes ? two(`${minutes} min`, rest, "s") : `${rest} s`;
}

/** How long ago something was, as coarse as people say it. */
export function ago(seconds: number): string {
  if (seconds < 2) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  return `${span(Math.floor(seconds / 60) * 60)} ago`;
}

export function count(value: Maybe): string {
  if (value === null) return UNKNOWN;
  return value < 10 ? String(Math.round(value * 10) / 10) : Math.round(value).toLocaleString("en");
}

/** A count that may be of millions. */
export function large(value: number): string {
  if (value >= 1e9) return `${(value / 1e9).toPrecision(3)} G`;
  return value >= 1e6 ? `${(value / 1e6).toPrecision(3)} M` : count(value);
}

/** `1 node`, `3 nodes`. */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** A reason as words: `no_room` is `no room`. */
export function reason(code: string): string {
  return code === "5xx" ? "server errors (5xx)" : code.replaceAll("_", " ");
}

/** A kind of event as words. */
export function kindWord(kind: string): string {
  if (kind === EVERY_LEVEL) return "every level";
  return kind === "rung" ? "how a load is read" : kind.replaceAll("_", " ");
}

/** `12/s no room, 3/s timeout`, the most frequent first. */
export function reasonsPerSecond(reasons: Readonly<Record<string, number>>, most = 3): string {
  const all = Object.entries(reasons).sort((one, other) => other[1] - one[1]);
  const said = all.slice(0, most).map(([code, often]) => `${count(often)}/s ${reason(code)}`);
  return said.join(", ") + (all.length > most ? `, and ${plural(all.length - most, "reason")} more` : "");
}

/** Where a load comes from. */
const SOURCES: Readonly<Record<string, string>> = {
  agent_realtime: "by its agent",
  agent: "by its agent, not at real-time priority",
  shm: "from shared memory",
  kernel: "by its kernel",
  snmp: "by SNMP",
  orca: "in its responses (ORCA)",
};

/** When and how the load was read. */
export function readSentence(node: Node): string {
  if (node.age === null) return node.source === "none" ? "load not read" : "load not read yet";
  const how = SOURCES[node.source] ?? (node.source === "none" ? "" : `by ${reason(node.source)}`);
  const late = node.tasks === null && node.cpu === null ? ", too old to go by" : "";
  return `read ${time(node.age)} ago${how && ` ${how}`}${late}`;
}

/** `5 tasks on 8 CPUs`. */
export function tasksSentence(node: Node): string {
  if (node.tasks === null) return "load not known";
  const tasks = plural(node.tasks, "task");
  return node.cpus === null ? tasks : `${tasks} on ${plural(node.cpus, "CPU")}`;
}

/** Its share and the median of the others', so that one that sticks out is seen. */
export function shareSentence(share: Maybe, others: Maybe): string {
  if (share === null) return "no answers in the last seconds";
  return (
    `${percent(share)} of the site's answers` + (others === null ? "" : `, its neighbours ${percent(others)}`)
  );
}

export function readerSentence({ reader }: Overview): string {
  if (reader.nodes === 0) return "No loads are read.";
  const every = `Loads of ${plural(reader.nodes, "node")} are read every ${time(reader.interval_seconds)}`;
  if (reader.realtime) return `${every} at real-time priority.`;
  return `${every} at normal priority${reader.note ? ` (${reader.note})` : ""}.`;
}

export function sinceStart(seen: Overview): string {
  const { completed, failed, rejected, cancelled } = seen;
  return (
    `Since the start, ${large(completed)} requests were completed, ${large(failed)} failed, ` +
    `${large(rejected)} were refused and ${large(cancelled)} cancelled by their clients.`
  );
}

export function aboutSentence(seen: Overview): string {
  const parts = [`version ${seen.version}`, `up ${span(seen.uptime_seconds)}`];
  if (seen.listeners.length) parts.push(`listening on ${seen.listeners.join(", ")}`);
  if (seen.front_ends > 1) parts.push(`one of ${seen.front_ends} front-ends`);
  return parts.join(" · ");
}
