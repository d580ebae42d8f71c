// Scenes: clusters in the states that an operator meets.

import { moves, request, why } from "./answers";
import { Cluster, type NodeModel, type SiteModel, noise } from "./cluster";

const HOUR = 3600;

function node(name: string, salt: number, share: number, change: Partial<NodeModel> = {}): NodeModel {
  return {
    name,
    state: () => "up",
    source: "agent_realtime",
    cpus: 8,
    cpu: (time) => 0.38 + 0.08 * Math.sin(time / 190 + salt) + 0.05 * noise(Math.floor(time / 10), salt),
    share: () => share,
    p99: (time) => 0.024 + 0.004 * noise(Math.floor(time / 10), salt + 7),
    errors: () => 0,
    note: () => null,
    weight: 1,
    ...change,
  };
}

function site(name: string, rate: number, nodes: NodeModel[], change: Partial<SiteModel> = {}): SiteModel {
  const salt = name.length;
  return {
    name,
    hosts: [`${name}.example`],
    paths: [],
    policy: "auto",
    nodes,
    requests: (time) =>
      rate * (1 + 0.12 * Math.sin(time / 240 + salt) + 0.03 * noise(Math.floor(time / 10), salt)),
    refused: () => ({}),
    errors: () => ({}),
    p99: (time) => 0.024 + 0.004 * noise(Math.floor(time / 10), salt),
    queued: () => 0,
    grown: [],
    ...change,
  };
}

function nodes(prefix: string, many: number): NodeModel[] {
  return Array.from({ length: many }, (_, at) =>
    node(`${prefix}${at + 1}`, at * 1.7 + prefix.length, 1 / many),
  );
}

const started = {
  at: -3 * 24 * HOUR,
  kind: "started",
  level: "note",
  site: null,
  node: null,
  text: "this front-end has started",
} as const;

/** Nothing is wrong. */
export function calm(): Cluster {
  const cluster = new Cluster([
    site("shop", 1240, nodes("shop-", 4)),
    site("blog", 310, nodes("blog-", 3), { paths: ["/news"] }),
    site("api", 2210, nodes("api-", 5), { policy: "least_requests" }),
  ]);
  cluster.headline = {
    level: "good",
    text: "all is well: 3 sites, 12 nodes, 3760 requests/s, p99 26 ms",
    others: [],
  };
  cluster.events = [
    { ...started },
    {
      at: -2 * HOUR,
      kind: "reloaded",
      level: "note",
      site: null,
      node: null,
      by: "anna at 10.0.0.9",
      text: "the configuration was reloaded: 2 changes",
    },
    {
      at: -540,
      kind: "weight",
      level: "note",
      site: "shop",
      node: "shop-2",
      by: "anna at 10.0.0.9",
      text: "shop-2 weighs 1 instead of 0.5",
    },
  ];
  cluster.plan = {
    applied: false,
    changes: [
      { what: "node shop-5", key: null, before: null, after: "10.0.1.15:8080 of shop" },
      { what: "site blog", key: "policy", before: "auto", after: "round_robin" },
    ],
    upgrade: [],
    restart: [{ what: "[server]", key: "workers", before: "4", after: "8" }],
    notes: ["shop-5 starts slowly, within 30 s"],
  };
  cluster.why = why(cluster);
  cluster.moves = moves();
  return cluster;
}

/** One node of three has died four minutes ago. */
export function deadNode(): Cluster {
  const since = -242;
  const down = (time: number) => time >= since;
  const reason = "ejected: 5 requests in a row failed (connect); tried again in 12 s";
  const shop = [
    node("shop-1", 1, 0.5, {
      share: (time) => (down(time) ? 0.5 : 1 / 3),
      cpu: (time) => (down(time) ? 0.71 : 0.44) + 0.05 * noise(Math.floor(time / 10), 1),
    }),
    node("shop-2", 2, 0, {
      state: (time) => (down(time) ? "ejected" : "up"),
      share: (time) => (down(time) ? 0 : 1 / 3),
      cpu: (time) => (down(time) ? null : 0.43),
      note: (time) => (down(time) ? reason : null),
    }),
    node("shop-3", 3, 0.5, {
      share: (time) => (down(time) ? 0.5 : 1 / 3),
      cpu: (time) => (down(time) ? 0.74 : 0.45) + 0.05 * noise(Math.floor(time / 10), 3),
    }),
  ];
  const failing = (time: number) => (time >= since && time < since + 10 ? { connect: 41 } : {});
  const cluster = new Cluster([
    site("blog", 310, nodes("blog-", 3)),
    site("shop", 1240, shop, {
      errors: failing,
      p99: (time) => (down(time) ? 0.061 : 0.026) + 0.006 * noise(Math.floor(time / 10), 5),
    }),
  ]);
  cluster.headline = {
    level: "warn",
    text: "1 of 3 nodes of shop is out: shop-2 was ejected 4 min ago (connect)",
    others: [{ level: "warn", text: "the load of shop-2 is not known since 4 min" }],
  };
  cluster.events = [
    { ...started },
    {
      at: since - 60,
      kind: "ready",
      level: "note",
      site: "blog",
      node: "blog-2",
      by: "anna at 10.0.0.9",
      text: "blog-2 is ready again",
    },
    {
      at: since,
      kind: "ejected",
      level: "bad",
      site: "shop",
      node: "shop-2",
      text: "shop-2 is ejected: 5 requests in a row failed (connect)",
    },
    {
      at: since + 3,
      kind: "load_unknown",
      level: "warn",
      site: "shop",
      node: "shop-2",
      text: "the load of shop-2 is not known any more: its agent does not answer",
    },
  ];
  cluster.requests = [request("1-2f3a", "shop", "shop-2", 502, "connect", 244)];
  cluster.why = why(cluster);
  return cluster;
}

/** More requests than a site can serve: it refuses a third of them. */
export function overload(): Cluster {
  const since = -155;
  const hot = (time: number) => time >= since;
  const shop = [1, 2, 3].map((at) =>
    node(`shop-${at}`, at, 1 / 3, {
      cpu: (time) => (hot(time) ? 1.3 : 0.55) + 0.04 * noise(Math.floor(time / 10), at),
      p99: (time) => (hot(time) ? 0.42 : 0.03),
    }),
  );
  const cluster = new Cluster([
    site("blog", 310, nodes("blog-", 3)),
    site("shop", 0, shop, {
      requests: (time) => (hot(time) ? 2350 : 1240) * (1 + 0.05 * noise(Math.floor(time / 10), 4)),
      refused: (time): Record<string, number> => (hot(time) ? { no_room: 610, queue_timeout: 92 } : {}),
      p99: (time) => (hot(time) ? 0.48 : 0.031) * (1 + 0.1 * noise(Math.floor(time / 10), 4)),
      queued: (time) => (hot(time) ? 480 * (1 + 0.1 * noise(Math.floor(time / 10), 8)) : 0),
      grown: [{ kind: "GET /search?q", in_flight: 212 }],
    }),
  ]);
  cluster.headline = {
    level: "bad",
    text: "shop refuses 702 of 2,350 requests/s for want of room (no_room 610, queue_timeout 92)",
    others: [
      { level: "warn", text: "requests of shop wait 0.2 s for room" },
      { level: "warn", text: "kinds that have grown go last at shop: GET /search?q (212 in flight)" },
    ],
  };
  cluster.events = [
    { ...started },
    {
      at: since,
      kind: "refusals",
      level: "bad",
      site: "shop",
      node: null,
      text: "shop refuses requests: 610/s no_room",
    },
  ];
  cluster.requests = Array.from({ length: 12 }, (_, at) =>
    request(`1-8a${at}`, "shop", null, 503, "no_room", at / 2),
  );
  cluster.why = why(cluster);
  return cluster;
}

/** One class of requests loads the database of all sites: its node is full, and all wait for it. */
export function culprit(): Cluster {
  const since = -400;
  const slow = (time: number) => time >= since;
  const cluster = new Cluster([
    site("blog", 310, nodes("blog-", 3)),
    site("shop", 1240, nodes("shop-", 4), {
      p99: (time) => (slow(time) ? 0.92 : 0.026) * (1 + 0.12 * noise(Math.floor(time / 10), 4)),
      queued: (time) => (slow(time) ? 168 * (1 + 0.2 * noise(Math.floor(time / 10), 8)) : 0),
    }),
  ]);
  cluster.headline = {
    level: "warn",
    text: "db cpu is full (97 %): GET /report/{n} takes 71 % of it, at 3 requests/s",
    others: [{ level: "warn", text: "168 requests of shop wait for room, up to 0.15 s" }],
  };
  cluster.events = [
    { ...started },
    {
      at: since + 20,
      kind: "accused",
      level: "warn",
      site: "shop",
      node: null,
      text: "GET /report/{n} is named as the culprit of db cpu: 71 %",
    },
  ];
  cluster.throttles = [{ class: "shop GET /search/*", set_by: "operator", waiting: 4 }];
  cluster.why = why(cluster);
  return cluster;
}

/** A thousand nodes at one site, a few of them wrong, and a small site beside it. */
export function thousand(): Cluster {
  const many = 1000;
  const all = Array.from({ length: many }, (_, at) => {
    const own = 0.45 + 0.3 * noise(at, 3);
    return node(`n${at + 1}`, at, 1 / many, {
      cpus: 16,
      cpu: (time) => Math.max(0, Math.min(0.94, own + 0.12 * noise(Math.floor(time), at))),
    });
  });
  const out = [37, 404, 405, 911];
  for (const at of out) {
    Object.assign(all[at] ?? {}, {
      state: () => "ejected",
      share: () => 0,
      cpu: () => null,
      note: () => "ejected: its check failed 3 times (timeout)",
    });
  }
  for (const at of [100, 101, 102]) Object.assign(all[at] ?? {}, { state: () => "drain", share: () => 0 });
  Object.assign(all[650] ?? {}, { cpu: () => 1.6 });
  const cluster = new Cluster([site("static", 410, nodes("static-", 3)), site("fleet", 182_000, all)]);
  cluster.headline = {
    level: "warn",
    text: "4 of 1,000 nodes of fleet are out: n38, n405, n406 and 1 more were ejected",
    others: [{ level: "warn", text: "n651 of fleet has 27 tasks on 16 CPUs" }],
  };
  cluster.events = [
    { ...started },
    {
      at: -300,
      kind: "ejected",
      level: "bad",
      site: "fleet",
      node: "n38",
      text: "n38 is ejected: its check failed 3 times (timeout)",
    },
  ];
  cluster.why = why(cluster);
  return cluster;
}
