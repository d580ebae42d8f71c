// Bundles each page into one file that needs nothing from elsewhere, or the tests for node.
//
//   node build.mjs page NAME [FILE]   a page, by default into the file that is checked in
//   node build.mjs tests              test/*.test.ts into out/unit/
//   node build.mjs browser            browser/*.test.ts into out/browser/, the pages into out/pages/
//
// The same sources and the same lock file give the same bytes.
import { createHash } from "node:crypto";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
/** Oldest engines that the pages are for. */
const TARGET = ["es2022", "chrome100", "firefox100", "safari16"];
/** The pages: their sources, where each is checked in, and packages whose code is in the bundle: their licences go with it. */
const PAGES = {
  culprits: { from: "src", to: "../crates/culprits/src/page.html", bundled: ["uplot"] },
  front: { from: "src/front", to: "../crates/tidegate/src/admin/page.html", bundled: [] },
};

async function bundle(entry) {
  const done = await build({
    entryPoints: [join(HERE, entry)],
    bundle: true,
    minify: true,
    format: "iife",
    target: TARGET,
    charset: "utf8",
    legalComments: "none",
    write: false,
  });
  return done.outputFiles[0].text.trim();
}

async function licences(bundled) {
  const texts = bundled.map(async (name) => {
    const folder = join(HERE, "node_modules", name);
    const { version } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
    const text = await readFile(join(folder, "LICENSE"), "utf8");
    return `It contains ${name} ${version}:\n\n${text.trim()}`;
  });
  return (await Promise.all(texts)).join("\n\n");
}

const hash = (text) => `'sha256-${createHash("sha256").update(text, "utf8").digest("base64")}'`;

async function page({ from, to, bundled }, file = join(HERE, to)) {
  const [script, style, notice, template] = await Promise.all([
    bundle(`${from}/main.ts`),
    bundle(`${from}/style.css`),
    licences(bundled),
    readFile(join(HERE, from, "page.html"), "utf8"),
  ]);
  if (/<\/script|<!--/i.test(script) || /<\/style/i.test(style) || notice.includes("--")) {
    throw new Error("a bundled text would end its element early");
  }
  const parts = {
    NOTICE: notice,
    STYLE: style,
    SCRIPT: script,
    STYLE_HASH: hash(style),
    SCRIPT_HASH: hash(script),
  };
  const text = template.replace(/@([A-Z_]+)@/g, (whole, name) => parts[name] ?? whole);
  await writeFile(file, text);
}

async function tests(folder, out) {
  await rm(out, { recursive: true, force: true });
  await mkdir(out, { recursive: true });
  const files = (await readdir(join(HERE, folder))).filter((file) => file.endsWith(".test.ts"));
  await build({
    entryPoints: files.map((file) => join(HERE, folder, file)),
    outdir: out,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    packages: "external",
    platform: "node",
    format: "esm",
    target: "node18",
    logLevel: "warning",
  });
}

const [what, name, to] = process.argv.slice(2);
if (what === "page" && Object.hasOwn(PAGES, name)) {
  await page(PAGES[name], to);
} else if (what === "tests") {
  await tests("test", join(HERE, "out/unit"));
} else if (what === "browser") {
  await tests("browser", join(HERE, "out/browser"));
  const pages = join(HERE, "out/pages");
  await mkdir(pages, { recursive: true });
  for (const [name, one] of Object.entries(PAGES)) await page(one, join(pages, `${name}.html`));
} else {
  console.error(`usage: node build.mjs page ${Object.keys(PAGES).join("|")} [FILE] | tests | browser`);
  process.exitCode = 2;
}
