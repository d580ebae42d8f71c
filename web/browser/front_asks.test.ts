// What is asked and when, what the side panel says, and what an older front-end cannot answer.

import assert from "node:assert/strict";
import { test } from "node:test";
import { axe, open, picture } from "./harness";
import { request } from "./answers";
import * as scenes from "./scenes";

test("history is asked for whole once, then for its newest steps", async () => {
  const scene = scenes.calm();
  const { page, server, close } = await open(scene, { clock: true });
  const asked = () => server.gets("/api/history").map((it) => it.query.get("last"));
  const path = page.locator(".site[data-site=shop] .picture path.area").first();
  await path.and(page.locator("[d^=M]")).waitFor({ state: "attached" });
  const before = await path.getAttribute("d");
  scene.time += 10;
  await page.clock.fastForward(10_500);
  await page
    .locator(`.site[data-site=shop] figure:first-child path.area:not([d="${before}"])`)
    .waitFor({ state: "attached" });
  assert.deepEqual(asked(), ["90", "2"]);
  // After a gap all is asked again.
  scene.time += 300;
  const again = page.waitForResponse(/last=90/);
  await page.clock.fastForward(10_500);
  await again;
  assert.deepEqual(asked().slice(2, 4), ["2", "90"]);
  await close();
});

test("what a chart's caption says is of now, whatever step its picture ends with", async () => {
  const scene = scenes.calm();
  const { page, server, close } = await open(scene);
  const latency = page.locator(".site[data-site=shop] figure", { hasText: "p99" });
  await latency.locator("path[d^=M]").first().waitFor({ state: "attached" });
  scene.sites.find((it) => it.name === "shop")!.p99 = () => 0.4567;
  await latency.getByText("457 ms", { exact: true }).waitFor();
  assert.equal(server.gets("/api/history").length, 1, "no later step has come");
  await close();
});

test("events are asked for when there are newer ones, listed newest first and filtered", async () => {
  const scene = scenes.deadNode();
  const { page, server, close } = await open(scene);
  const items = page.locator("#events-list li");
  await items.first().waitFor();
  assert.match(await items.first().innerText(), /load of shop-2 is not known/);
  assert.match(await items.last().innerText(), /3 d ago/);
  scene.events.push({
    at: scene.time,
    kind: "returned",
    level: "good",
    site: "shop",
    node: "shop-2",
    text: "shop-2 is back",
    times: 4,
    first: scene.time - 90,
  });
  await page.getByText("shop-2 is back").waitFor();
  assert.match(await items.first().innerText(), /· 4 times in 1 min 30 s · returned · shop/);
  assert.deepEqual(
    server.gets("/api/events").map((it) => it.query.get("after")),
    ["0", "4"],
  );
  assert.equal(await items.count(), 5);
  await page.getByLabel("kind").selectOption("ejected");
  await items.nth(1).waitFor({ state: "detached" });
  assert.match(await items.first().innerText(), /shop-2 is ejected/);
  await page.getByLabel("kind").selectOption("");
  await page.getByLabel("level").selectOption("warn");
  assert.equal(await items.count(), 1);
  await page.getByLabel("level").selectOption("");
  await page.locator("#events-site").selectOption("blog");
  assert.equal(await items.count(), 2);
  await close();
});

test("events of another process take the place of those of the last one", async () => {
  const scene = scenes.deadNode();
  const { page, server, close } = await open(scene);
  const items = page.locator("#events-list li");
  await items.first().waitFor();
  const text = "the next process listens";
  const event = { at: scene.time, level: "note", site: null, node: null } as const;
  scene.since += 100;
  scene.events = [
    { ...event, kind: "ready", text },
    ...Array.from({ length: 6 }, () => ({ ...event, kind: "moved", text: "n1 moved" })),
  ];
  await page.getByText(text).waitFor();
  assert.equal(await items.count(), 7);
  assert.deepEqual(
    server.gets("/api/events").map((it) => it.query.get("after")),
    ["0", "4", "0"],
  );
  await close();
});

test("nothing is asked while the page is not seen", async () => {
  const { page, server, close } = await open(scenes.calm(), { clock: true });
  await page.locator("tr[data-node=shop-1]").waitFor();
  const turn = (state: string) =>
    page.evaluate((to) => {
      Object.defineProperty(document, "visibilityState", { value: to, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, state);
  await turn("hidden");
  await page.waitForLoadState("networkidle");
  const before = server.asked.length;
  await page.clock.fastForward(30_000);
  await page.waitForLoadState("networkidle");
  assert.equal(server.asked.length, before);
  await turn("visible");
  await page.waitForResponse(/overview/);
  await close();
});

test("a click on a node says why, sentences first, and the address keeps it", async () => {
  const { page, close } = await open(scenes.deadNode());
  await page.getByRole("button", { name: "shop-1", exact: true }).click();
  const panel = page.getByRole("complementary", { name: "Why shop-1" });
  await panel.getByText("shop-1 gets 50 % of the requests of shop.").waitFor();
  assert.equal(await panel.getByText("seconds that a request would wait").isVisible(), false);
  await panel.getByText("numbers").click();
  await panel.getByText("seconds that a request would wait").waitFor();
  assert.deepEqual(await axe(page), []);
  assert.match(page.url(), /#why=node%3Ashop-1$/);
  await page.reload();
  await panel.getByText("shop-1 gets 50 %").waitFor();
  await page.keyboard.press("Escape");
  await panel.waitFor({ state: "hidden" });
  assert.doesNotMatch(page.url(), /#/);
  await close();
});

test("a site, what it refuses and an event are explained", async () => {
  const { page, server, close } = await open(scenes.overload());
  await page.getByRole("button", { name: "shop", exact: true }).click();
  await page.getByText("shop chooses by the policy auto").waitFor();
  await page.getByRole("button", { name: /702\/s refused: 610\/s no room/ }).click();
  await page.getByText("The last 12 requests of shop that were refused or failed:").waitFor();
  assert.equal(server.gets("/api/requests").at(-1)?.query.has("wrong"), true);
  await page.getByText("GET /search?q of shop was refused with 503 after 2.1 ms: no room").first().waitFor();
  await picture(page, "front-why");
  assert.deepEqual(await axe(page), []);
  await page.getByRole("button", { name: "shop refuses requests: 610/s no_room" }).click();
  await page.getByRole("heading", { name: "shop now" }).waitFor();
  await close();
});

test("a request is found by its id", async () => {
  const { page, close } = await open(scenes.deadNode());
  await page.locator("#request-id").fill("1-2f3a");
  await page.keyboard.press("Enter");
  await page.getByText("GET /search?q of shop was refused with 502 after 2.1 ms: connect").waitFor();
  assert.match(page.url(), /why=request%3A1-2f3a/);
  await page.locator("#request-id").fill("none");
  await page.getByRole("button", { name: "Find" }).click();
  await page.getByText("no request none is known").waitFor();
  await close();
});

test("an older front-end: what it lacks is said in words", async () => {
  const scene = scenes.calm();
  for (const path of ["events", "history", "access", "throttles", "requests", "moves"])
    scene.missing.add(`/api/${path}`);
  const { page, close } = await open(scene);
  await page.getByText("This front-end keeps no events: it is older than this page.").waitFor();
  await page
    .getByText("The last 15 minutes are not known: this front-end is older than this page.")
    .waitFor();
  await page.getByText("No node moves between sites: [reconfigure] is off.").waitFor();
  await page.locator("tr[data-node=shop-1]").waitFor();
  await close();
});

test("without an overview, and after it is gone", async () => {
  const scene = scenes.calm();
  scene.missing.add("/api/overview");
  const { page, close } = await open(scene);
  await page.getByText("This front-end has no overview: it is older than this page.").waitFor();
  scene.missing.clear();
  await page.locator("tr[data-node=shop-1]").waitFor();
  await page.locator("#notice").waitFor({ state: "hidden" });
  await close();
});

test("a token is asked for", async () => {
  const scene = scenes.calm();
  const answer = scene.answer.bind(scene);
  scene.answer = (asked) =>
    asked.headers["authorization"] === "Bearer secret"
      ? answer(asked)
      : { status: 401, json: { error: "no" } };
  const { page, close } = await open(scene);
  await page.getByText("This front-end asks for a token.").waitFor();
  assert.deepEqual(await axe(page), []);
  await page.getByLabel("Admin token").fill("secret");
  await page.getByRole("button", { name: "Show" }).click();
  await page.locator("tr[data-node=shop-1]").waitFor();
  assert.equal(await page.locator("#login").isHidden(), true);
  await close();
});

test("texts of clients never become markup", async () => {
  const scene = scenes.deadNode();
  const hostile = "<img src=x onerror=alert(1)>\u202e<b>";
  scene.headline = { level: "bad", text: hostile, others: [{ level: "warn", text: hostile }] };
  scene.events.push({ at: 0, kind: hostile, level: "bad", site: hostile, node: null, text: hostile });
  scene.node("shop-2").note = () => hostile;
  scene.requests = [
    { ...request("1-2f3a", "shop", null, 503, hostile, 1), path: hostile, sentence: hostile },
  ];
  const { page, close } = await open(scene, { path: "/#why=request:1-2f3a" });
  await page.locator("#panel").getByText("<img src=x").first().waitFor();
  assert.equal(await page.locator("img, b b").count(), 0);
  assert.doesNotMatch(await page.locator("body").innerText(), /\u202e/);
  await close();
});
