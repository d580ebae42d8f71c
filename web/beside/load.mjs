// Requests at fixed rates, whatever becomes of them.
import { Agent, request } from "node:http";

/** Requests that wait for their answers at once; beyond that a client gives up, and is counted as failed. */
const OPEN = 1500;
const TIMEOUT_MS = 20_000;

/** Sends `rates[path]` requests a second of each path to `port` until `stop` is called. */
export function load(host, port, rates) {
  const agent = new Agent({ keepAlive: true, maxFreeSockets: OPEN });
  const counts = { sent: 0, fine: 0, refused: 0, failed: 0, open: 0, slowest: [] };
  const send = (path) => {
    counts.sent += 1;
    if (counts.open >= OPEN) return void (counts.failed += 1);
    counts.open += 1;
    const began = performance.now();
    const done = (kind) => {
      counts.open -= 1;
      counts[kind] += 1;
      if (kind === "fine") counts.slowest.push(performance.now() - began);
    };
    const asked = request(
      { host, port, path, agent, headers: { host: "shop" }, timeout: TIMEOUT_MS },
      (answer) => {
        answer.resume();
        answer.once("end", () =>
          done(answer.statusCode < 300 ? "fine" : answer.statusCode === 503 ? "refused" : "failed"),
        );
        answer.once("error", () => {});
      },
    );
    asked.once("timeout", () => asked.destroy());
    asked.once("error", () => done("failed"));
    asked.end();
  };
  const began = performance.now();
  const sent = Object.fromEntries(Object.keys(rates).map((path) => [path, 0]));
  const timer = setInterval(() => {
    const seconds = (performance.now() - began) / 1000;
    for (const [path, rate] of Object.entries(rates))
      for (; sent[path] < seconds * rate; sent[path] += 1) send(path);
  }, 10);
  return {
    stop() {
      clearInterval(timer);
      agent.destroy();
      const times = counts.slowest.sort((one, other) => one - other);
      return {
        ...counts,
        slowest: undefined,
        p99_ms: Math.round(times[Math.floor(times.length * 0.99)] ?? 0),
      };
    },
  };
}
