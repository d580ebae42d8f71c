// The products whose pages are looked at: how each is set before the same nodes, and where an operator looks.
//
// Each is configured as its documentation would have it for three web servers: health checks on, a page, metrics.
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { HOST, NODES, agent, start } from "./cluster.mjs";

const PORTS = { tidegate: 8001, haproxy: 8002, traefik: 8003 };
export const PROMETHEUS = 9090;

const servers = (line) => NODES.map(line).join("\n");

export const PRODUCTS = {
  tidegate: {
    port: PORTS.tidegate,
    metrics: "127.0.0.1:9900",
    async start(folder, { tidegate }) {
      const file = join(folder, "tidegate.toml");
      const nodes = servers(
        ({ name, address }) => `[[node]]\nname = "${name}"\nsite = "shop"\naddress = "${address}:8080"`,
      );
      await writeFile(
        file,
        `[admin]\naddress = "127.0.0.1:9900"\n[[listener]]\naddress = "${HOST}:${PORTS.tidegate}"\n[load]\nkey_file = "${join(folder, "master.key")}"\n[[site]]\nname = "shop"\n${nodes}\n`,
      );
      for (const node of NODES) agent(folder, tidegate, node);
      return start(join(folder, "tidegate.out"), tidegate, ["run", file]);
    },
    async look(page, saw) {
      await page.goto("http://127.0.0.1:9900/");
      await page.locator("tr[data-node=n2]").waitFor();
      // What the browser's own start costs the machine is in the figures of the last seconds otherwise.
      await page.waitForTimeout(12_000);
      await saw("0 front page");
      await page.getByRole("button", { name: "n2", exact: true }).click();
      await page.waitForTimeout(1500);
      await saw("1 click on n2");
      await page.goto("http://127.0.0.1:9900/culprits");
      await page.waitForTimeout(4000);
      await saw("1 culprits");
    },
  },
  haproxy: {
    port: PORTS.haproxy,
    metrics: "127.0.0.1:8404",
    async start(folder, { haproxy }) {
      const file = join(folder, "haproxy.cfg");
      await writeFile(
        file,
        `global
  maxconn 4000
defaults
  mode http
  option http-keep-alive
  timeout connect 2s
  timeout client 30s
  timeout server 30s
  timeout queue 5s
frontend stats
  bind 127.0.0.1:8404
  http-request use-service prometheus-exporter if { path /metrics }
  stats enable
  stats uri /
  stats show-legends
frontend web
  bind ${HOST}:${PORTS.haproxy}
  default_backend shop
backend shop
  balance leastconn
  option httpchk GET /health
${servers(({ name, address }) => `  server ${name} ${address}:8080 check maxconn 32`)}
`,
      );
      return start(join(folder, "haproxy.out"), haproxy, ["-db", "-f", file]);
    },
    async look(page, saw) {
      await page.goto("http://127.0.0.1:8404/");
      await saw("0 stats page");
      const hidden = await page
        .locator("tr", { hasText: "Backend" })
        .locator(".tips")
        .evaluateAll((all) => all.map((it) => it.textContent));
      await saw("0 tool tips of the backend", hidden.join("\n---\n"));
    },
  },
  traefik: {
    port: PORTS.traefik,
    metrics: "127.0.0.1:8080",
    async start(folder, { traefik }) {
      const [file, routes] = [join(folder, "traefik.yml"), join(folder, "routes.yml")];
      await writeFile(
        file,
        `api: { insecure: true, dashboard: true }
global: { checkNewVersion: false, sendAnonymousUsage: false }
entryPoints:
  web: { address: "${HOST}:${PORTS.traefik}" }
  traefik: { address: "127.0.0.1:8080" }
metrics: { prometheus: { addRoutersLabels: true, addServicesLabels: true } }
providers: { file: { filename: "${routes}" } }
`,
      );
      await writeFile(
        routes,
        `http:
  routers:
    shop: { rule: "PathPrefix(\`/\`)", service: shop, entryPoints: [web] }
  services:
    shop:
      loadBalancer:
        healthCheck: { path: /health, interval: 2s, timeout: 1s }
        servers:
${servers(({ address }) => `          - url: "http://${address}:8080"`)}
`,
      );
      return start(join(folder, "traefik.out"), traefik, [`--configFile=${file}`]);
    },
    async look(page, saw) {
      await page.goto("http://127.0.0.1:8080/dashboard/");
      await page.waitForTimeout(2500);
      await saw("0 dashboard");
      await page.goto("http://127.0.0.1:8080/dashboard/#/http/services");
      await page.waitForTimeout(2500);
      await saw("1 HTTP services");
      await page.getByText("shop@file").first().click();
      await page.waitForTimeout(2500);
      await saw("2 service shop");
    },
  },
};

/** What panels of common dashboards ask Prometheus: of HAProxy's exporter, of Traefik's own dashboard, of node_exporter. */
export const PANELS = {
  tidegate: {
    "refused and why": "sum by (reason) (rate(tidegate_requests_unserved_total[1m])) > 0",
    p99: "histogram_quantile(0.99, sum by (le, site) (rate(tidegate_site_request_duration_seconds_bucket[1m])))",
    "CPU of nodes":
      "max by (node) (rate(tidegate_node_cpu_seconds_total[1m])) / max by (node) (tidegate_node_cpus)",
    ejected: "max by (node) (tidegate_node_ejected) == 1",
  },
  haproxy: {
    "servers that are down": 'haproxy_server_status{proxy="shop",state="DOWN"} == 1',
    "requests by code": 'sum by (code) (rate(haproxy_backend_http_responses_total{proxy="shop"}[1m])) > 0',
    "mean time of the last 1024": 'haproxy_server_total_time_average_seconds{proxy="shop"}',
    queue: 'haproxy_backend_current_queue{proxy="shop"}',
    sessions: 'haproxy_server_current_sessions{proxy="shop"}',
  },
  traefik: {
    "servers up": "traefik_service_server_up",
    "requests by code": 'sum by (code) (rate(traefik_service_requests_total{service="shop@file"}[1m])) > 0',
    p95: 'histogram_quantile(0.95, sum by (le, service) (rate(traefik_service_request_duration_seconds_bucket{service="shop@file"}[1m])))',
    "top slow services":
      'topk(15, label_replace(traefik_service_request_duration_seconds_sum / traefik_service_request_duration_seconds_count, "service", "$1", "service", "([^@]+)@.*"))',
    "open connections": "sum(traefik_open_connections) by (entrypoint)",
  },
  node_exporter: { "CPU of nodes": 'avg by (instance) (rate(node_cpu_seconds_total{mode!="idle"}[1m]))' },
};
