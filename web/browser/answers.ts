// Answers of the interface that scenes have in common.

import type { Cluster } from "./cluster";

export function request(
  id: string,
  site: string,
  node: string | null,
  status: number,
  reason: string | null,
  ago: number,
) {
  return {
    id,
    trace_id: null,
    seconds_ago: ago,
    site,
    node,
    method: "GET",
    path: "/search?q",
    status,
    reason,
    tries: node === null ? 0 : 2,
    duration_seconds: 0.0021,
    wait_seconds: 0,
    sentence:
      reason === null
        ? `GET /search?q of ${site} was answered ${status} by ${node} within 2.1 ms`
        : `GET /search?q of ${site} was refused with ${status} after 2.1 ms: ${reason.replaceAll("_", " ")}`,
  };
}

export function why(cluster: Cluster) {
  return (name: string) => {
    const own = cluster.sites.find((it) => it.nodes.some((one) => one.name === name));
    const isSite = cluster.sites.some((it) => it.name === name);
    if (!own && !isSite) return null;
    const first = own
      ? `${name} gets ${Math.round((cluster.node(name).share(cluster.time) ?? 0) * 100)} % of the requests of ${own.name}.`
      : `${name} chooses by the policy auto: the node that would answer soonest.`;
    return {
      kind: own ? "node" : "site",
      site: own?.name ?? name,
      policy: "auto",
      policy_what: "sends each request to the node that would answer it soonest",
      text: `${first}\nIts load was read 1.2 ms ago, and is believed.`,
      reasons: [first],
      terms: [{ name: "expected_wait", value: 0.0031, what: "seconds that a request would wait" }],
      decisions: [],
    };
  };
}

export function moves() {
  const at = new Date(Date.UTC(2026, 2, 8, 3, 8, 0)).toISOString();
  const of = (site: string, count: number, pressure: number, frozen = false) => {
    return {
      site,
      nodes: count,
      min: 1,
      max: 6,
      priority: 0,
      frozen,
      demand: 9,
      cpus: 24,
      pressure,
      verdict: "has room",
      best: null,
    };
  };
  return {
    engine: "memory",
    dry_run: false,
    paused: false,
    trouble: null,
    sites: [of("shop", 4, 0.41), of("blog", 3, 0.22, true)],
    unfollowed: [],
    waiting: [],
    held_back: [],
    under_way: [],
    moves: [
      {
        number: 1,
        at,
        own: true,
        node: "shop-4",
        from: "blog",
        to: "shop",
        cause: "load",
        pressure: 1.4,
        expected: 0.9,
        failed: null,
      },
    ],
    counts: [],
  };
}
