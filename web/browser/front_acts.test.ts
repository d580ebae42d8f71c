// What an operator does: each order asks once, says what it will do, is sent in the operator's name, and shows
// what it has changed.

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Page } from "playwright-core";
import { axe, open, picture } from "./harness";
import * as scenes from "./scenes";
import type { MockServer } from "./server";

const dialog = (page: Page) => page.getByRole("dialog");

/** Says yes, with a name if none is known yet, and gives the order that arrived. */
async function yes(page: Page, server: MockServer, name: string) {
  const before = server.posts().length;
  const operator = dialog(page).getByLabel("Your name");
  if ((await operator.inputValue()) === "") await operator.fill("anna");
  await dialog(page).getByRole("button", { name, exact: true }).click();
  await dialog(page).waitFor({ state: "hidden" });
  const posts = server.posts().slice(before);
  assert.equal(posts.length, 1);
  const [post] = posts;
  assert.ok(post);
  assert.equal(post.headers["tidegate-operator"], "anna");
  assert.equal(post.headers["tidegate-override"], "1");
  return { path: post.path, body: post.body };
}

const act = (page: Page, node: string) => page.getByRole("button", { name: `Act on ${node}…` }).click();

test("drain: asked once, sent in a name, its effect shown, taken back", async () => {
  const scene = scenes.calm();
  scene.pace = 6;
  const { page, server, close } = await open(scene);
  await act(page, "shop-2");
  await dialog(page).getByText("shop-2 gets no new requests of shop from this front-end.").waitFor();
  await dialog(page)
    .getByText(/It answers \d+ requests\/s, 25 % of the site's/)
    .waitFor();
  assert.deepEqual(await axe(page), []);
  await picture(page, "front-drain");
  // Without a name nothing is sent.
  await dialog(page).getByRole("button", { name: "Drain shop-2" }).click();
  await dialog(page).getByText("Your name is needed").waitFor();
  assert.equal(server.posts().length, 0);
  assert.deepEqual(await yes(page, server, "Drain shop-2"), { path: "/api/nodes/shop-2/drain", body: null });
  const effect = page.locator(".effect");
  await effect.getByText("Done: Drain shop-2").waitFor();
  await effect.getByText("p99 is that of the worst second").waitFor();
  const cells = await effect.locator("tbody td").allInnerTexts();
  assert.equal(cells.length, 6);
  assert.ok(
    cells.every((it) => /\d/.test(it)),
    cells.join(),
  );
  await page.locator("tr[data-node=shop-2]").getByText("drain", { exact: true }).waitFor();
  await picture(page, "front-effect");
  assert.deepEqual(await axe(page), []);
  const asked = server.gets("/api/history").filter((it) => it.query.get("step") === "1");
  assert.ok(asked.every((it) => it.query.get("site") === "shop"));
  await effect.getByRole("button", { name: "Undo: Make shop-2 ready…" }).click();
  assert.deepEqual(await yes(page, server, "Make shop-2 ready"), {
    path: "/api/nodes/shop-2/ready",
    body: null,
  });
  await close();
});

test("maintenance, weight and a move", async () => {
  const { page, server, close } = await open(scenes.calm());
  await act(page, "shop-1");
  await dialog(page).getByText("maintenance: no new requests").click();
  assert.deepEqual(await yes(page, server, "Put shop-1 into maintenance"), {
    path: "/api/nodes/shop-1/maint",
    body: null,
  });
  await act(page, "shop-3");
  await dialog(page).getByText("another weight").click();
  await dialog(page).getByLabel("New weight").fill("2.5");
  await dialog(page).getByText("shop-3 weighs 2.5 instead of 1").waitFor();
  assert.deepEqual(await yes(page, server, "Give shop-3 the weight 2.5"), {
    path: "/api/nodes/shop-3/weight",
    body: { weight: 2.5 },
  });
  await act(page, "blog-1");
  await dialog(page).getByText("move to another site").click();
  await dialog(page).getByRole("combobox").selectOption("api");
  assert.deepEqual(await yes(page, server, "Move blog-1 to api"), {
    path: "/api/moves",
    body: { node: "blog-1", site: "api" },
  });
  await close();
});

test("a class is throttled and released", async () => {
  const { page, server, close } = await open(scenes.culprit());
  const shop = page.locator(".site[data-site=shop]");
  await shop.getByRole("button", { name: "Throttle…" }).click();
  await dialog(page).getByLabel("Class").fill("GET /report/{n}");
  await dialog(page).getByLabel("Requests at once").fill("1");
  await dialog(page)
    .getByText("At most one of its requests is in progress at once; the others wait.")
    .waitFor();
  assert.deepEqual(await yes(page, server, "Throttle shop GET /report/{n}"), {
    path: "/api/throttle",
    body: { class: "shop GET /report/{n}", limits: { concurrency: 1 }, for_seconds: 600 },
  });
  await shop.getByText("Throttled: shop GET /search/* (by operator, 4 wait).").waitFor();
  await shop.getByRole("button", { name: "Release…" }).click();
  assert.deepEqual(await yes(page, server, "Release shop GET /search/*"), {
    path: "/api/release",
    body: { class: "shop GET /search/*" },
  });
  await close();
});

test("a reload shows its plan first", async () => {
  const { page, server, close } = await open(scenes.calm());
  await page.getByRole("button", { name: "Reload…" }).click();
  await dialog(page).getByText("+ node shop-5 10.0.1.15:8080 of shop").waitFor();
  await dialog(page).getByText("~ [server]: workers = 4 → 8").waitFor();
  assert.equal(server.posts()[0]?.query.has("dry_run"), true);
  assert.deepEqual(await yes(page, server, "Reload the configuration"), { path: "/api/reload", body: null });
  assert.equal(server.posts()[1]?.query.has("dry_run"), false);
  await close();
});

test("moves are shown, paused, and a site is frozen", async () => {
  const { page, server, close } = await open(scenes.calm());
  const moves = page.locator("#moves");
  await moves.getByText("shop-4: blog → shop (load: 1.4 tasks per CPU, 0.9 expected)").waitFor();
  assert.equal(await moves.locator(".moverow[data-site=shop] .timeline i").textContent(), "▲");
  await moves.getByRole("button", { name: "Pause…" }).click();
  assert.deepEqual(await yes(page, server, "Pause moves"), { path: "/api/moves/pause", body: null });
  await moves.getByRole("button", { name: "freeze shop" }).click();
  assert.deepEqual(await yes(page, server, "Freeze shop"), {
    path: "/api/moves/freeze",
    body: { site: "shop" },
  });
  await moves.getByRole("button", { name: "thaw blog" }).click();
  assert.deepEqual(await yes(page, server, "Thaw blog"), { path: "/api/moves/thaw", body: { site: "blog" } });
  await close();
});

test("an order that is refused stays open with the reason; one without an answer too", async () => {
  const scene = scenes.deadNode();
  scene.onPost = () => ({ status: 503, json: { error: "another process has taken over" } });
  const { page, close } = await open(scene);
  await act(page, "shop-1");
  await dialog(page).getByText("Only one other node of shop is up.").waitFor();
  await dialog(page).getByLabel("Your name").fill("anna");
  await dialog(page).getByRole("button", { name: "Drain shop-1" }).click();
  await dialog(page).getByText("another process has taken over").waitFor();
  assert.equal(await page.locator(".effect").count(), 0);
  await dialog(page).getByRole("button", { name: "Cancel" }).click();
  await dialog(page).waitFor({ state: "hidden" });
  await close();
});

test("a drain by keyboard alone, and the focus is back where it was", async () => {
  const { page, server, close } = await open(scenes.deadNode());
  await page.locator("tr[data-node=shop-1]").waitFor();
  const focused = () => page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? "");
  for (let tabs = 0; (await focused()) !== "Act on shop-1…"; tabs += 1) {
    assert.ok(tabs < 60, "it cannot be reached");
    await page.keyboard.press("Tab");
  }
  await page.keyboard.press("Enter");
  await dialog(page).waitFor();
  // The first choice is a drain; the name is the next stop.
  await page.keyboard.press("Tab");
  await page.keyboard.type("anna");
  await page.keyboard.press("Enter");
  await dialog(page).waitFor({ state: "hidden" });
  assert.equal(server.posts()[0]?.path, "/api/nodes/shop-1/drain");
  assert.equal(await focused(), "Act on shop-1…");
  await close();
});

test("the name is kept for the next order", async () => {
  const { page, server, close } = await open(scenes.calm());
  await act(page, "shop-1");
  await yes(page, server, "Drain shop-1");
  await page.reload();
  await act(page, "shop-2");
  assert.equal(await dialog(page).getByLabel("Your name").inputValue(), "anna");
  await close();
});

test("a token that may only read has no hands", async () => {
  const scene = scenes.deadNode();
  scene.access = { may_act: false, token: "read", by: "10.0.0.9" };
  const { page, close } = await open(scene);
  await page.getByText("read-only token: nothing can be done from here").waitFor();
  await page.locator("tr[data-node=shop-1]").waitFor();
  assert.equal(await page.locator(".hand:visible").count(), 0);
  await close();
});
