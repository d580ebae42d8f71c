// What is open, as the part of the address behind `#`, so that a link shows the same to another operator.

export const TOPICS = ["node", "site", "refusals", "event", "request"] as const;
export type TopicKind = (typeof TOPICS)[number];

/** What the side panel is about. */
export interface Topic {
  kind: TopicKind;
  name: string;
}

export interface Shown {
  topic: Topic | null;
  filter: string;
  /** Sites that were opened or closed by hand. */
  open: Map<string, boolean>;
}

const SITES_MAX = 100;
const LENGTH_MAX = 200;

export function parseHash(hash: string): Shown {
  const read = new URLSearchParams(hash.replace(/^#/, ""));
  const [kind, ...rest] = (read.get("why") ?? "").split(":");
  const known = TOPICS.find((it) => it === kind);
  const name = rest.join(":").slice(0, LENGTH_MAX);
  const open = new Map<string, boolean>();
  for (const site of read.getAll("open").slice(0, SITES_MAX)) open.set(site, true);
  for (const site of read.getAll("shut").slice(0, SITES_MAX)) open.set(site, false);
  return {
    topic: known && name ? { kind: known, name } : null,
    filter: (read.get("find") ?? "").slice(0, LENGTH_MAX),
    open,
  };
}

export function hashOf({ topic, filter, open }: Shown): string {
  const parts = new URLSearchParams();
  if (topic) parts.set("why", `${topic.kind}:${topic.name}`);
  if (filter) parts.set("find", filter);
  for (const [site, isOpen] of open) parts.append(isOpen ? "open" : "shut", site);
  const text = parts.toString();
  return text && `#${text}`;
}
