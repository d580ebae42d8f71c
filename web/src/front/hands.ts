// What an operator can do: the order that is sent, the sentences that say beforehand what it will do and whom
// it concerns, and how it is taken back.

import { percent } from "../format";
import { type ThrottleOverride, sentences as throttleSentences } from "../override";
import type { Node, Overview, Site } from "./overview";
import { count, plural } from "./words";

export const NODE_WORDS = ["drain", "maint", "ready"] as const;
export type NodeWord = (typeof NODE_WORDS)[number];

export type Hand =
  | { kind: NodeWord; node: string; site: string }
  | {
      kind: "weight";
      node: string;
      site: string;
      /** null: what it weighs by itself */ weight: number | null;
    }
  | { kind: "move"; node: string; site: string; to: string }
  | { kind: "throttle"; site: string; override: ThrottleOverride }
  | { kind: "release"; site: string; class: string }
  | { kind: "reload" }
  | { kind: "pause" | "resume" }
  | { kind: "freeze" | "thaw"; site: string };

export interface Order {
  path: string;
  body: object | null;
}

const WEIGHT_MIN = 0.001;
const WEIGHT_MAX = 1000;

export function orderOf(hand: Hand): Order {
  switch (hand.kind) {
    case "drain":
    case "maint":
    case "ready":
      return { path: `/api/nodes/${encodeURIComponent(hand.node)}/${hand.kind}`, body: null };
    case "weight":
      return { path: `/api/nodes/${encodeURIComponent(hand.node)}/weight`, body: { weight: hand.weight } };
    case "move":
      return { path: "/api/moves", body: { node: hand.node, site: hand.to } };
    case "throttle":
      return { path: "/api/throttle", body: hand.override };
    case "release":
      return { path: "/api/release", body: { class: hand.class } };
    case "reload":
      return { path: "/api/reload", body: null };
    case "pause":
    case "resume":
      return { path: `/api/moves/${hand.kind}`, body: null };
    case "freeze":
    case "thaw":
      return { path: `/api/moves/${hand.kind}`, body: { site: hand.site } };
  }
}

/** The question, and the label of the button that says yes. */
export function label(hand: Hand): string {
  switch (hand.kind) {
    case "drain":
      return `Drain ${hand.node}`;
    case "maint":
      return `Put ${hand.node} into maintenance`;
    case "ready":
      return `Make ${hand.node} ready`;
    case "weight":
      return hand.weight === null
        ? `Give ${hand.node} its own weight`
        : `Give ${hand.node} the weight ${count(hand.weight)}`;
    case "move":
      return `Move ${hand.node} to ${hand.to}`;
    case "throttle":
      return `Throttle ${hand.override.class}`;
    case "release":
      return `Release ${hand.class}`;
    case "reload":
      return "Reload the configuration";
    case "pause":
      return "Pause moves";
    case "resume":
      return "Resume moves";
    case "freeze":
      return `Freeze ${hand.site}`;
    case "thaw":
      return `Thaw ${hand.site}`;
  }
}

/** The site whose requests show the effect; null: all of them. */
export function siteOf(hand: Hand): string | null {
  return "site" in hand ? hand.site : null;
}

/** What takes it back; null if nothing does. */
export function undo(hand: Hand, seen: Overview): Hand | null {
  switch (hand.kind) {
    case "drain":
    case "maint":
      return { ...hand, kind: "ready" };
    case "weight": {
      const before = nodeOf(seen, hand)?.weight;
      return before === undefined || before === hand.weight || hand.weight === null
        ? null
        : { ...hand, weight: null };
    }
    case "move":
      return { ...hand, site: hand.to, to: hand.site };
    case "throttle":
      return { kind: "release", site: hand.site, class: hand.override.class };
    case "pause":
      return { kind: "resume" };
    case "freeze":
      return { ...hand, kind: "thaw" };
    case "ready":
    case "release":
    case "reload":
    case "resume":
    case "thaw":
      return null;
  }
}

export interface Saying {
  /** What will be done, to what. */
  lines: string[];
  /** What is dangerous about it; null if nothing is. */
  warning: string | null;
}

/** What it will do, by what is seen now. */
export function saying(hand: Hand, seen: Overview): Saying {
  const safe = (...lines: string[]): Saying => ({ lines, warning: null });
  switch (hand.kind) {
    case "drain":
    case "maint":
      return { lines: outLines(hand, seen), warning: lastOne(hand, seen) };
    case "ready":
      return safe(
        `${hand.node} gets requests of ${hand.site} again.`,
        "What its agent or its checks say still counts.",
      );
    case "weight":
      return weightSaying(hand, seen);
    case "move":
      return {
        lines: [
          `${hand.node} leaves ${hand.site} and serves ${hand.to}.`,
          nodeNow(hand, seen),
          "Requests in flight end as they would have. The limits of both sites still count.",
        ],
        warning: lastOne(hand, seen),
      };
    case "throttle":
      return safe(...throttleSentences(hand.override));
    case "release":
      return safe(`Requests of ${hand.class} that wait go on at once, and none is held any more.`);
    case "reload":
      return safe("The configuration file is put in force as it is now.");
    case "pause":
      return safe("Load moves no node between sites until moves are resumed. Operators still can.");
    case "resume":
      return safe("Load moves nodes between sites again.");
    case "freeze":
      return safe(`${hand.site} neither gets nor gives a node, at any front-end, until it is thawed.`);
    case "thaw":
      return safe(`${hand.site} gets and gives nodes again.`);
  }
}

type OfNode = { node: string; site: string };

function outLines(hand: OfNode & { kind: "drain" | "maint" | "ready" }, seen: Overview): string[] {
  const then =
    hand.kind === "maint"
      ? "Nothing is expected of it until it is made ready."
      : "Those in flight end by themselves.";
  return [
    `${hand.node} gets no new requests of ${hand.site} from this front-end. ${then}`,
    nodeNow(hand, seen),
  ];
}

function weightSaying(hand: OfNode & { weight: number | null }, seen: Overview): Saying {
  const before = nodeOf(seen, hand)?.weight;
  const from = before === undefined ? "" : ` instead of ${count(before)}`;
  return {
    lines: [
      hand.weight === null
        ? `${hand.node} weighs again what its owner, the file or a source, says${from}.`
        : `${hand.node} weighs ${count(hand.weight)}${from}, until this process ends: what a policy makes of it, it says in "why".`,
      nodeNow(hand, seen),
    ],
    warning: null,
  };
}

/** Whom it concerns: what the node does now. */
function nodeNow(hand: OfNode, seen: Overview): string {
  const node = nodeOf(seen, hand);
  if (!node) return `${hand.node} is not seen now.`;
  const part = node.share === null ? "" : `, ${percent(node.share)} of the site's`;
  const rate = `It answers ${count(node.rate)} requests/s${part}`;
  return `${rate}, and has ${plural(node.in_flight, "request")} in flight from here.`;
}

function lastOne(hand: OfNode, seen: Overview): string | null {
  const site = siteNamed(seen, hand.site);
  const others = site?.nodes.filter((it) => it.name !== hand.node) ?? [];
  if (!site || others.length === 0) return `${hand.site} has no other node: its requests will be refused.`;
  const up = others.filter((it) => it.state === "up").length;
  if (up === 0) return `No other node of ${hand.site} is up: its requests will be refused or fail.`;
  return up === 1 ? `Only one other node of ${hand.site} is up.` : null;
}

export function siteNamed(seen: Overview, name: string): Site | undefined {
  return seen.sites.find((it) => it.name === name);
}

export function nodeOf(seen: Overview, { node, site }: OfNode): Node | undefined {
  return siteNamed(seen, site)?.nodes.find((it) => it.name === node);
}

// === what is typed

/** A weight that was typed; throws a RangeError with a sentence if it is none. */
export function typedWeight(typed: string): number {
  const weight = Number(typed);
  if (typed.trim() === "" || !Number.isFinite(weight) || weight < WEIGHT_MIN || weight > WEIGHT_MAX) {
    throw new RangeError(
      `A weight from ${WEIGHT_MIN} to ${WEIGHT_MAX} is needed; drain it to send it nothing.`,
    );
  }
  return weight;
}

/** The name of the one that acts, as it may stand in a header; throws a RangeError with a sentence. */
export function typedOperator(typed: string): string {
  const name = typed.trim().replace(/ +/g, " ");
  if (name === "") throw new RangeError("Your name is needed: it stands in the events beside what was done.");
  if (!/^[A-Za-z0-9._@ -]{1,64}$/.test(name)) {
    throw new RangeError("A name has at most 64 letters (a to z), digits, blanks and . _ - @.");
  }
  return name;
}

/** A class of one site: with the site's name before it, unless it is there. */
export function classOf(site: string, typed: string): string {
  const name = typed.trim();
  if (name === "") throw new RangeError("Which class? For example GET /search/*.");
  return name.startsWith(`${site} `) ? name : `${site} ${name}`;
}
