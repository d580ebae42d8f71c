// A server that stands in for a front-end: the bundled pages with the policy that a front-end sends with
// them, and an interface whose answers a scene gives. It notes what it was asked.

import { readFileSync } from "node:fs";
import { type IncomingMessage, type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";

export interface Asked {
  method: string;
  path: string;
  query: URLSearchParams;
  headers: Record<string, string | string[] | undefined>;
  /** The body, read as JSON; null if there is none. */
  body: unknown;
}

export interface Answer {
  status?: number;
  json: unknown;
}

/** What stands behind the interface: null is a 404. */
export interface Scene {
  answer(asked: Asked): Answer | null;
}

/** The pages that `node build.mjs browser` makes. */
const PAGES: Record<string, string> = { "/": "front", "/culprits": "culprits" };
const POLICY = /<meta http-equiv="Content-Security-Policy" content="([^"]*)"/;

export class MockServer {
  readonly asked: Asked[] = [];
  /** Bytes of the last answer to each path. */
  readonly sizes = new Map<string, number>();
  private readonly server = createServer((request, response) => void this.serve(request, response));

  constructor(public scene: Scene) {}

  /** Listens, and returns the address with the scheme. */
  async start(): Promise<string> {
    await new Promise<void>((done) => this.server.listen(0, "127.0.0.1", done));
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((done) => this.server.close(done));
  }

  posts(): Asked[] {
    return this.asked.filter((it) => it.method === "POST");
  }

  gets(path: string): Asked[] {
    return this.asked.filter((it) => it.method === "GET" && it.path === path);
  }

  private async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "/", "http://localhost");
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const name = PAGES[url.pathname];
    if (name !== undefined) return this.page(name, response);
    const text = Buffer.concat(chunks).toString("utf8");
    const asked = {
      method: request.method ?? "GET",
      path: decodeURIComponent(url.pathname),
      query: url.searchParams,
      headers: request.headers,
      body: text === "" ? null : (JSON.parse(text) as unknown),
    };
    this.asked.push(asked);
    const answer = this.scene.answer(asked) ?? { status: 404, json: { error: "there is no such thing" } };
    const body = JSON.stringify(answer.json);
    this.sizes.set(asked.path, Buffer.byteLength(body));
    response.writeHead(answer.status ?? 200, {
      "content-type": "application/json",
      "cache-control": "no-store",
    });
    response.end(body);
  }

  private page(name: string, response: ServerResponse): void {
    const text = readFileSync(join(process.cwd(), "out/pages", `${name}.html`), "utf8");
    const policy = POLICY.exec(text)?.[1];
    if (policy === undefined) return void response.writeHead(500).end(`the page ${name} has no policy`);
    response.writeHead(200, {
      "content-type": "text/html; charset=utf-8",
      "content-security-policy": `${policy}; frame-ancestors 'none'`,
      "cache-control": "no-store",
    });
    response.end(text);
  }
}
