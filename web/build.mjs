// Bundles the page into one file that needs nothing from elsewhere, or the tests for node.
//
//   node build.mjs page [FILE]    the page, by default the one that is checked in
//   node build.mjs tests          test/*.test.ts into out/
//
// The same sources and the same lock file give the same bytes.
import { createHash } from "node:crypto";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const CHECKED_IN = join(HERE, "../crates/culprits/src/page.html");
/** Oldest engines that the page is for. */
const TARGET = ["es2022", "chrome100", "firefox100", "safari16"];
/** Packages whose code is in the bundle; their licences go with it. */
const BUNDLED = ["uplot"];

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

async function licences() {
  const texts = BUNDLED.map(async (name) => {
    const folder = join(HERE, "node_modules", name);
    const { version } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
    const text = await readFile(join(folder, "LICENSE"), "utf8");
    return `It contains ${name} ${version}:\n\n${text.trim()}`;
  });
  return (await Promise.all(texts)).join("\n\n");
}

const hash = (text) => `'sha256-${createHash("sha256").update(text, "utf8").digest("base64")}'`;

async function page(to) {
  const [script, style, notice, template] = await Promise.all([
    bundle("src/main.ts"),
    bundle("src/style.css"),
    licences(),
    readFile(join(HERE, "src/page.html"), "utf8"),
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
  await writeFile(to, text);
}

async function tests() {
  const out = join(HERE, "out");
  await rm(out, { recursive: true, force: true });
  await mkdir(out);
  const files = (await readdir(join(HERE, "test"))).filter((file) => file.endsWith(".test.ts"));
  await build({
    entryPoints: files.map((file) => join(HERE, "test", file)),
    outdir: out,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node18",
    logLevel: "warning",
  });
}

const [what, to] = process.argv.slice(2);
if (what === "page") {
  await page(to ?? CHECKED_IN);
} else if (what === "tests") {
  await tests();
} else {
  console.error("usage: node build.mjs page [FILE] | tests");
  process.exitCode = 2;
}
