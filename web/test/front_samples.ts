// Nodes, sites and overviews to change in tests.

import type { Node, Overview, Site } from "../src/front/overview";

export function node(change: Partial<Node>): Node {
  return {
    name: "n1",
    state: "up",
    source: "agent_realtime",
    tasks: 4,
    cpus: 8,
    cpu: 0.45,
    age: 0.0012,
    in_flight: 3,
    share: 0.5,
    rate: 50,
    p50: 0.003,
    p99: 0.02,
    errors: 0,
    weight: 1,
    note: null,
    ...change,
  };
}

export function site(change: Partial<Site>): Site {
  return {
    name: "shop",
    policy: "auto",
    hosts: ["shop.example"],
    paths: [],
    candidates: 2,
    fail_open: false,
    requests_per_second: 100,
    p50_seconds: 0.003,
    p99_seconds: 0.02,
    queued: 0,
    queue_wait_p99_seconds: null,
    refused: {},
    errors: {},
    grown: [],
    nodes: [node({ name: "n1" }), node({ name: "n2" })],
    ...change,
  };
}

export function overview(change: Partial<Overview>): Overview {
  return {
    version: "0.1.0",
    uptime_seconds: 100,
    at_seconds: 1000,
    ready: true,
    draining: false,
    listeners: ["127.0.0.1:8080"],
    front_ends: 1,
    topology_version: 1,
    newest_event: 0,
    headline: { level: "good", text: "all is well", others: [] },
    recent: { requests_per_second: 100, errors_per_second: 0, p50_seconds: 0.003, p99_seconds: 0.02 },
    load_age_p99_seconds: 0.002,
    in_flight: 3,
    connections: 9,
    completed: 12,
    failed: 0,
    rejected: 0,
    cancelled: 0,
    reader: { nodes: 2, interval_seconds: 0.002, realtime: true, note: null },
    sites: [site({})],
    ...change,
  };
}
