import { byId, make, setText } from "../dom";
import { Client } from "./client";
import { parseOverview } from "./overview";

const client = new Client();
async function update(): Promise<void> {
  const seen = parseOverview(await client.get("/api/overview"));
  byId("headline").hidden = false;
  setText(byId("worst"), seen.headline.text);
  byId("sites").replaceChildren(...seen.sites.map((it) => make("section", "site", make("h2", "", it.name))));
}
void update();
