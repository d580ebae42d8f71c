// What is wrong with nodes and sites, and which comes first.
//
//   node   bad    failing or ejected; 5 % of its answers or more are errors
//          warn   errors at all; 1.5 tasks or more for each CPU while these are full; a load that is
//                 not known although that of a neighbour is
//          note   an operator's or an agent's word, or a move: nothing that is wrong
//   site   bad    no node may take requests, or none is up; 1 % of its requests or more are refused or fail
//          warn   any refused or failed; a node that is bad or warns; waits of 0.1 s; kinds that have grown
//
// Worst first: by level, then by what clients lose, by nodes that are wrong and by requests that wait, each in
// powers of two so that two sites that are about as bad do not change places each second; then in the order
// of the configuration.

import { type Level, type Node, type Site, total } from "./overview";
import { count, reason, tasksSentence } from "./words";

export type NodeLevel = Level | "note";
const WEIGHT: Record<NodeLevel, number> = { bad: 3, warn: 2, note: 1, good: 0 };
const BAD_STATES: ReadonlySet<string> = new Set(["failing", "ejected"]);
const ERRORS_BAD = 0.05;
const TASKS_MANY = 1.5;
/** Used share of CPUs that are full. */
const CPU_FULL = 0.9;
const LOST_BAD = 0.01;
const WAIT_LONG_S = 0.1;

/**
 * Whether it has more to do than its CPUs can. Tasks are of this moment and the use of CPUs is of seconds: several tasks at
 * once are no overload while CPUs are idle in between, and one is none on a part of a CPU.
 */
export function isOverloaded(node: Node): boolean {
  const { tasks, cpus, cpu } = node;
  if (tasks === null || cpus === null || cpus <= 0 || (cpu !== null && cpu < CPU_FULL)) return false;
  return tasks >= TASKS_MANY * Math.max(1, cpus);
}

/** `expects`: loads of its neighbours are known, so its own should be. */
export function nodeLevel(node: Node, expects: boolean): NodeLevel {
  if (BAD_STATES.has(node.state)) return "bad";
  if (node.errors > 0 && node.errors >= ERRORS_BAD * node.rate) return "bad";
  if (node.state !== "up") return "note";
  if (node.errors > 0 || isOverloaded(node)) return "warn";
  return expects && node.tasks === null && node.cpu === null ? "warn" : "good";
}

export interface Ranked {
  node: Node;
  level: NodeLevel;
}

/** Whether any of its nodes has a load that is known. */
export function expectsLoads(site: Site): boolean {
  return site.nodes.some((node) => node.tasks !== null || node.cpu !== null);
}

/** The nodes with their levels, in the order of the configuration. */
export function judged(site: Site): Ranked[] {
  const expects = expectsLoads(site);
  return site.nodes.map((node) => ({ node, level: nodeLevel(node, expects) }));
}

export function worstNodesFirst(nodes: readonly Ranked[]): Ranked[] {
  const harm = ({ node }: Ranked) => power(node.errors);
  return [...nodes].sort((a, b) => WEIGHT[b.level] - WEIGHT[a.level] || harm(b) - harm(a));
}

export function isWrong({ level }: Ranked): boolean {
  return level === "bad" || level === "warn";
}

/** Requests per second that clients do not get. */
export function lost(site: Site): number {
  return total(site.refused) + total(site.errors);
}

export function siteLevel(site: Site, nodes: readonly Ranked[]): Level {
  if (site.nodes.length > 0 && (site.candidates === 0 || site.fail_open)) return "bad";
  const gone = lost(site);
  if (gone > 0 && gone >= LOST_BAD * site.requests_per_second) return "bad";
  const waits = site.queued > 0 && (site.queue_wait_p99_seconds ?? 0) >= WAIT_LONG_S;
  return gone > 0 || waits || site.grown.length > 0 || nodes.some(isWrong) ? "warn" : "good";
}

export interface RankedSite {
  site: Site;
  level: Level;
  nodes: Ranked[];
}

export function worstSitesFirst(sites: readonly Site[]): RankedSite[] {
  const all = sites.map((site) => {
    const nodes = judged(site);
    const harm = [lost(site), nodes.filter(isWrong).length, site.queued].map(power);
    return { site, level: siteLevel(site, nodes), nodes, harm };
  });
  const worse = (a: readonly number[], b: readonly number[]) =>
    a.map((own, at) => (b[at] ?? 0) - own).find((difference) => difference !== 0) ?? 0;
  return all.sort((a, b) => WEIGHT[b.level] - WEIGHT[a.level] || worse(a.harm, b.harm));
}

/** The power of two below it. */
function power(value: number): number {
  return value > 0 ? Math.floor(Math.log2(value)) : -1024;
}

/** What is wrong with a node, in words; empty if nothing is. */
export function complaints({ node, level }: Ranked): string[] {
  const said: string[] = [];
  // The first sentence says what is wrong; those behind it how it came and how it ends.
  if (node.note !== null) said.push(node.note.split("; ")[0] ?? "");
  else if (node.state !== "up") said.push(reason(node.state));
  if (node.errors > 0) said.push(`${count(node.errors)} errors/s`);
  if (isOverloaded(node)) said.push(tasksSentence(node));
  if (level === "warn" && said.length === 0) said.push("its load is not known");
  return said;
}

/** Median of the shares of the others; null if there are none. */
export function neighbours(node: Node, all: readonly Node[]): number | null {
  const shares = all.filter((it) => it !== node && it.share !== null && it.state === "up");
  const sorted = shares.map((it) => it.share ?? 0).sort((one, other) => one - other);
  return sorted[Math.floor(sorted.length / 2)] ?? null;
}
