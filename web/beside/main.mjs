// Five scenes of the lab before Tidegate, HAProxy, Traefik and Prometheus, and what their pages show: docs/dashboards.md.
//
//   node beside/main.mjs FOLDER [SCENE…] [PRODUCT…]
//
// As root, with haproxy, nginx, php-fpm, prometheus and prometheus-node-exporter of Debian, and the programs TIDEGATE
// and TRAEFIK. Each product serves each scene by itself, for SECONDS (75), before its pages are looked at.
import { mkdir, rm, writeFile } from "node:fs/promises";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { chromium } from "playwright-core";
import { HOST, NODES, down, exported, hog, serve, start, up } from "./cluster.mjs";
import { load } from "./load.mjs";
import { PANELS, PRODUCTS, PROMETHEUS } from "./products.mjs";

const run = promisify(execFile);
const seconds = (number) => new Promise((resolve) => setTimeout(resolve, number * 1000));
const SECONDS = Number(process.env.SECONDS ?? 75);
const PROGRAMS = {
  tidegate: process.env.TIDEGATE ?? "../target/release/tidegate",
  haproxy: process.env.HAPROXY ?? "haproxy",
  traefik: process.env.TRAEFIK ?? "traefik",
};

/** Requests per second by path: /item takes 4 ms of CPU, /report 60, and three nodes have 750 ms a second. */
const SCENES = {
  calm: { rates: { "/item": 80 } },
  dead: { rates: { "/item": 80 }, begin: ({ servers }) => servers[1]() },
  overload: { rates: { "/item": 320 } },
  culprit: { rates: { "/item": 60 }, later: { "/report": 7 } },
  loaded: { rates: { "/item": 80 }, begin: ({ folder }) => hog(folder, NODES[1]) },
};

/** A front-end's master, and the key of each node's agent. */
async function keys(folder) {
  const master = join(folder, "master.key");
  await run(PROGRAMS.tidegate, ["key", "new", master]);
  for (const { name } of NODES)
    await run(PROGRAMS.tidegate, [
      "key",
      "derive",
      "--master",
      master,
      "-o",
      join(folder, `${name}.key`),
      name,
    ]);
}

async function prometheus(folder) {
  const jobs = Object.entries(PRODUCTS).map(
    ([name, { metrics }]) => `- job_name: ${name}\n  static_configs: [{ targets: ["${metrics}"] }]`,
  );
  const exporters = NODES.map(({ name }, at) => {
    const port = 9101 + at;
    start(join(folder, "exporter.out"), "prometheus-node-exporter", [
      `--web.listen-address=127.0.0.1:${port}`,
      "--collector.disable-defaults",
      "--collector.textfile",
      `--collector.textfile.directory=${join(folder, name, "text")}`,
    ]);
    return `- job_name: ${name}\n  static_configs: [{ targets: ["127.0.0.1:${port}"], labels: { instance: "${name}" } }]`;
  });
  const file = join(folder, "prometheus.yml");
  await writeFile(
    file,
    `global: { scrape_interval: 15s }\nscrape_configs:\n${[...jobs, ...exporters].join("\n")}\n`,
  );
  start(join(folder, "prometheus.out"), "prometheus", [
    `--config.file=${file}`,
    `--storage.tsdb.path=${join(folder, "data")}`,
    `--web.listen-address=127.0.0.1:${PROMETHEUS}`,
  ]);
}

async function asked(name) {
  const answers = {};
  for (const group of [name, "node_exporter"])
    for (const [panel, query] of Object.entries(PANELS[group])) {
      const answer = await fetch(
        `http://127.0.0.1:${PROMETHEUS}/api/v1/query?query=${encodeURIComponent(query)}`,
      );
      const { data, error } = await answer.json();
      answers[`${group}: ${panel}`] =
        error ??
        data.result.map(
          ({ metric, value }) =>
            `${JSON.stringify({ ...metric, job: undefined })} ${Number(value[1]).toPrecision(3)}`,
        );
    }
  return answers;
}

/** One product in one scene: pictures, texts and answers go into `out`. */
async function play(out, folder, browser, sceneName, name) {
  const { rates, begin, later } = SCENES[sceneName];
  const product = PRODUCTS[name];
  await up(folder);
  const servers = await Promise.all(NODES.map((node) => serve(folder, node)));
  await Promise.all(NODES.map((node) => exported(folder, node)));
  const clock = setInterval(() => void Promise.all(NODES.map((node) => exported(folder, node))), 2000);
  await prometheus(folder);
  await product.start(folder, PROGRAMS);
  await seconds(3);
  const steady = load(HOST, product.port, rates);
  await seconds(20);
  const before = Date.now();
  await begin?.({ folder, servers });
  const dear = later && load(HOST, product.port, later);
  await seconds(SECONDS);
  const context = await browser.newContext({ viewport: { width: 1360, height: 1000 } });
  const page = await context.newPage();
  const saw = async (what, text) => {
    const file = join(out, `${sceneName}-${name}-${what.replaceAll(" ", "-")}`);
    await writeFile(`${file}.txt`, text ?? (await page.locator("body").innerText()));
    if (text === undefined) await page.screenshot({ path: `${file}.png`, fullPage: true });
  };
  try {
    await product.look(page, saw);
    const answers = await asked(name);
    const summary = {
      scene: sceneName,
      product: name,
      after: (Date.now() - before) / 1000,
      answers,
      load: steady.stop(),
      dear: dear?.stop(),
    };
    await writeFile(join(out, `${sceneName}-${name}.json`), JSON.stringify(summary, null, 2));
    console.log(JSON.stringify(summary));
  } finally {
    clearInterval(clock);
    await context.close();
    await down();
  }
}

const [out, ...wanted] = process.argv.slice(2);
if (!out) throw new Error("usage: node beside/main.mjs FOLDER [SCENE…] [PRODUCT…]");
const among = (all) => {
  const some = all.filter((it) => wanted.includes(it));
  return some.length > 0 ? some : all;
};
await mkdir(out, { recursive: true });
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
try {
  for (const scene of among(Object.keys(SCENES)))
    for (const name of among(Object.keys(PRODUCTS))) {
      const folder = join(out, `${scene}-${name}`);
      await rm(folder, { recursive: true, force: true });
      await mkdir(folder, { recursive: true });
      await keys(folder);
      await play(out, folder, browser, scene, name);
    }
} finally {
  await browser.close();
  await down();
}
