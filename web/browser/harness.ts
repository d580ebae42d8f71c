// Pages in a browser, for tests: one browser for each file of tests, one context for each page.
//
// A page that is opened here notes every error on its console, every exception and every violation of its
// policy; `close` refuses a page that has any. Nothing waits for a time: tests wait for what they expect.

import assert from "node:assert/strict";
import { accessSync, constants, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, join } from "node:path";
import { after } from "node:test";
import { type Browser, type Page, chromium } from "playwright-core";
import { smaller } from "./png";
import { MockServer, type Scene } from "./server";

const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  // Letters without colours at their edges make small pictures.
  "--disable-lcd-text",
];
export const DESKTOP = { width: 1360, height: 850 };
export const MOBILE = { width: 390, height: 844 };
const AXE = readFileSync(createRequire(join(process.cwd(), "package.json")).resolve("axe-core"), "utf8");
/** Pictures of the documentation are made anew on demand, others lie in out/. */
const PICTURES = "out/pictures";
const DOCUMENTED = process.env["UPDATE_PICTURES"] === "1" ? "../docs/pictures" : PICTURES;

export interface Look {
  /** Path and hash, by default the front page. */
  path?: string;
  dark?: boolean;
  mobile?: boolean;
  /** Runs in the page before its own script. */
  before?: string;
  /** Its clock goes on as it does, and can be put forward. */
  clock?: boolean;
}

export interface Opened {
  page: Page;
  server: MockServer;
  /** Takes what the page complained of so far. */
  complaints(): string[];
  /** Ends page and server; fails if the page complained. */
  close(): Promise<void>;
}

let running: Promise<Browser> | null = null;

/** The browser's program, from the search path; null if there is none. */
export function program(): string | null {
  const folders = (process.env["PATH"] ?? "").split(delimiter);
  const found = folders.map((folder) => join(folder, "chromium")).find(isProgram);
  return found ?? null;
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function browser(): Promise<Browser> {
  const executablePath = program();
  assert.ok(executablePath, "chromium is not installed");
  running ??= chromium.launch({ executablePath, args: FLAGS });
  return running;
}

/** What a test has left open because it failed: nothing may keep the process. */
const left = new Set<MockServer>();

after(async () => {
  await (await running)?.close();
  for (const server of left) await server.stop();
});

/** Opens a page on a scene. */
export async function open(scene: Scene, look: Look = {}): Promise<Opened> {
  const server = new MockServer(scene);
  left.add(server);
  const address = await server.start();
  const context = await (
    await browser()
  ).newContext({
    viewport: look.mobile ? MOBILE : DESKTOP,
    deviceScaleFactor: 1,
    hasTouch: look.mobile ?? false,
    colorScheme: look.dark ? "dark" : "light",
    reducedMotion: "reduce",
    timezoneId: "UTC",
    locale: "en-GB",
  });
  const page = await context.newPage();
  page.setDefaultTimeout(8_000);
  const noted: string[] = [];
  page.on("console", (message) => {
    // That an answer is an error is what some tests are about.
    const network = message.text().startsWith("Failed to load resource");
    if (message.type() === "error" && !network) noted.push(message.text());
  });
  page.on("pageerror", (error) => noted.push(String(error)));
  await page.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
    });
  });
  if (look.clock) await page.clock.install();
  if (look.before !== undefined) await page.addInitScript({ content: look.before });
  await page.goto(address + (look.path ?? "/"));
  const complaints = () => noted.splice(0);
  const close = async () => {
    await context.close();
    left.delete(server);
    await server.stop();
    assert.deepEqual(noted, [], "the page complained");
  };
  return { page, server, complaints, close };
}

/** Whatever the rules of accessibility find wrong with the page as it is. */
export async function axe(page: Page): Promise<string[]> {
  await page.evaluate(AXE);
  return page.evaluate(async () => {
    interface Found {
      id: string;
      nodes: { target: string[]; failureSummary: string }[];
    }
    const { axe } = window as unknown as { axe: { run(): Promise<{ violations: Found[] }> } };
    const { violations } = await axe.run();
    return violations.flatMap(({ id, nodes }) =>
      nodes.map((it) => `${id}: ${it.target.join(" ")}: ${it.failureSummary}`),
    );
  });
}

/** Whether anything makes the page wider than its window. */
export function isTooWide(page: Page): Promise<boolean> {
  return page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
}

/** A picture of the page, the window as it is, or all of it; gives its bytes. */
export async function picture(page: Page, name: string, all = false, isDocumented = true): Promise<number> {
  const folder = isDocumented ? DOCUMENTED : PICTURES;
  mkdirSync(folder, { recursive: true });
  const png = smaller(await page.screenshot({ fullPage: all, animations: "disabled" }));
  writeFileSync(join(folder, `${name}.png`), png);
  return png.length;
}
