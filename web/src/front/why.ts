// Why something is as it is: sentences first, numbers behind them.
//
// Answers of /api/why and /api/requests are shown as they are, field by field, so that a newer front-end may
// say more than this page knows of.

import { type Maybe, type Reader, count, list, maybe, object, some, text } from "../reader";
import { UNKNOWN } from "../format";
import { ago, time } from "./words";

const SENTENCES_MAX = 50;
const REQUESTS_MAX = 200;
const FIELDS_MAX = 400;
const DEPTH_MAX = 6;

/** One line of numbers: where it stands, and its value. */
export type Field = [name: string, value: string];

export interface Story {
  sentences: string[];
  fields: Field[];
}

const reasons = list(text, SENTENCES_MAX);

/** What /api/why says. */
export function storyOf(value: unknown): Story {
  const read = object<{ text: string | null; policy_what: string | null }>({
    text: maybe(text),
    policy_what: maybe(text),
  })(value, "why");
  const members = value as Record<string, unknown>;
  const said = read.text?.split("\n").filter((line) => line.trim() !== "");
  const { text: _, reasons: __, ...numbers } = members;
  return {
    sentences: said?.length ? said.slice(0, SENTENCES_MAX) : reasons(members["reasons"], "why.reasons"),
    fields: fieldsOf(numbers),
  };
}

export interface Request {
  id: string;
  trace_id: string | null;
  seconds_ago: Maybe;
  site: string | null;
  node: string | null;
  method: string;
  path: string;
  status: Maybe;
  reason: string | null;
  tries: Maybe;
  duration_seconds: Maybe;
  wait_seconds: Maybe;
  sentence: string | null;
  fields: Field[];
}

const rest: Reader<Field[]> = () => [];
const request = object<Request>({
  id: text,
  trace_id: maybe(text),
  seconds_ago: some,
  site: maybe(text),
  node: maybe(text),
  method: text,
  path: text,
  status: maybe(count),
  reason: maybe(text),
  tries: some,
  duration_seconds: some,
  wait_seconds: some,
  sentence: maybe(text),
  fields: rest,
});
const requests = object<{ requests: Request[] }>({ requests: list(request, REQUESTS_MAX) });

export function parseRequests(value: unknown): Request[] {
  const read = requests(value, "requests").requests;
  const raw = (value as { requests: Record<string, unknown>[] }).requests;
  return read.map((it, at) => {
    const { sentence: _, ...numbers } = raw[at] ?? {};
    return { ...it, fields: fieldsOf(numbers) };
  });
}

/** `GET /cart, 503 no room, 12 s ago`. */
export function requestLine(it: Request): string {
  const end = it.reason === null ? "" : ` ${it.reason.replaceAll("_", " ")}`;
  const status = it.status === null ? "no answer" : String(it.status);
  const parts = [`${it.method} ${it.path}`, `${status}${end}`];
  if (it.node !== null) parts.push(`at ${it.node}`);
  if (it.duration_seconds !== null) parts.push(`took ${time(it.duration_seconds)}`);
  if (it.seconds_ago !== null) parts.push(ago(it.seconds_ago));
  return parts.join(", ");
}

/** All numbers and texts of an answer, each with the path to it. */
export function fieldsOf(value: unknown): Field[] {
  const fields: Field[] = [];
  const walk = (at: string, it: unknown, depth: number): void => {
    if (fields.length >= FIELDS_MAX) return;
    if (Array.isArray(it) && depth < DEPTH_MAX) {
      const isPlain = it.every((member) => typeof member !== "object" || member === null);
      if (isPlain) fields.push([at, it.map((member) => plain(member)).join(", ") || UNKNOWN]);
      else it.forEach((member: unknown, index) => walk(`${at} ${index + 1}`, member, depth + 1));
    } else if (typeof it === "object" && it !== null && depth < DEPTH_MAX) {
      for (const [name, member] of Object.entries(it)) {
        walk(`${at}${at && " · "}${name.replaceAll("_", " ")}`, member, depth + 1);
      }
    } else fields.push([at, plain(it, at)]);
  };
  walk("", value, 0);
  return fields;
}

function plain(value: unknown, at = ""): string {
  if (value === null || value === undefined) return UNKNOWN;
  if (typeof value === "number") {
    return / seconds$/.test(at) ? time(value) : String(Math.round(value * 1e4) / 1e4);
  }
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "string" ? value : JSON.stringify(value);
}

// === the plan of a reload

export interface Plan {
  applied: boolean;
  changes: string[];
  upgrade: string[];
  restart: string[];
  notes: string[];
}

interface PlanLine {
  what: string;
  key: string | null;
  before: string | null;
  after: string | null;
}

const lines: Reader<string[]> = (value, at) =>
  list(
    object<PlanLine>({ what: text, key: maybe(text), before: maybe(text), after: maybe(text) }),
    FIELDS_MAX,
  )(value, at).map(planLine);

function planLine({ what, key, before, after }: PlanLine): string {
  if (key !== null) return `~ ${what}: ${key} = ${before ?? "not set"} → ${after ?? "not set"}`;
  return after === null ? `− ${what} ${before ?? ""}` : `+ ${what} ${after}`;
}

const plan = object<Plan>({
  applied: (value) => value === true,
  changes: lines,
  upgrade: lines,
  restart: lines,
  notes: reasons,
});

export function parsePlan(value: unknown): Plan {
  return plan(value, "reload");
}

// === throttles

export interface Throttle {
  class: string;
  set_by: string;
  waiting: number;
}

const throttles = object<{ throttles: Throttle[] }>({
  throttles: list(object<Throttle>({ class: text, set_by: text, waiting: count }), REQUESTS_MAX),
});

export function parseThrottles(value: unknown): Throttle[] {
  return throttles(value, "throttles").throttles;
}

/** Those of one site, and those over all of them: their names have no site before the method. */
export function throttlesOf(all: readonly Throttle[], site: string, sites: readonly string[]): Throttle[] {
  return all.filter((it) => {
    const first = it.class.split(" ")[0] ?? "";
    return first === site || !sites.includes(first);
  });
}
