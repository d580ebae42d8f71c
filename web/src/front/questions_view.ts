// What the dialog asks for: the fields of each order, and the order that they make.

import { make } from "../dom";
import { typedOverride } from "../override";
import type { Question } from "./dialog_view";
import { show, write } from "./elements";
import { type Hand, type NodeWord, NODE_WORDS, classOf, label, nodeOf, typedWeight } from "./hands";
import type { Overview } from "./overview";
import type { Plan } from "./why";

/** For how long a throttle may be. */
const DURATIONS = [
  ["600", "10 minutes"],
  ["1800", "30 minutes"],
  ["7200", "2 hours"],
  ["", "until it is released"],
] as const;
const WORDS: Record<NodeWord, string> = {
  drain: "drain: no new requests",
  maint: "maintenance: no new requests, and nothing is expected of it",
  ready: "ready: requests again",
};

export function plainQuestion(hand: Hand): Question {
  return { title: `${label(hand)}?`, fields: [], hand: () => hand };
}

/** Drain, maintenance, ready, weight or a move of a node. */
export function nodeQuestion(seen: Overview, site: string, node: string): Question {
  const now = nodeOf(seen, { node, site });
  const others = seen.sites.map((it) => it.name).filter((it) => it !== site);
  const isOut = now?.state.includes("drain") || now?.state.includes("maint");
  let chosen: string = isOut ? "ready" : "drain";
  const weight = field("New weight", "number", String(now?.weight ?? 1));
  weight.input.min = "0";
  weight.input.step = "any";
  const to = select("Site", others);
  const update = () => {
    show(weight.element, chosen === "weight");
    show(to.element, chosen === "move");
  };
  const words: (readonly [string, string])[] = NODE_WORDS.map((it) => [it, WORDS[it]]);
  words.push(["weight", "another weight"]);
  if (others.length > 0) words.push(["move", "move to another site"]);
  const radios = words.map(([value, text]) => {
    const input = make("input");
    input.type = "radio";
    input.name = "what";
    input.value = value;
    input.checked = value === chosen;
    input.addEventListener("change", () => {
      chosen = value;
      update();
    });
    return make("label", "radio", input, make("span", "", text));
  });
  update();
  const list = make("fieldset", "", make("legend", "away", "What to do"), ...radios);
  return {
    title: `Act on ${node}`,
    fields: [list, weight.element, to.element],
    hand: () => {
      if (chosen === "weight") return { kind: "weight", node, site, weight: typedWeight(weight.input.value) };
      if (chosen === "move") return { kind: "move", node, site, to: to.input.value };
      return { kind: NODE_WORDS.find((it) => it === chosen) ?? "drain", node, site };
    },
  };
}

/** A throttle on a class of a site. */
export function throttleQuestion(site: string): Question {
  const name = field("Class", "text", "");
  name.input.placeholder = "GET /search/*";
  const concurrency = field("Requests at once", "number", "");
  const rate = field("Requests per second", "number", "");
  const queue = field("Longest wait, seconds", "number", "");
  for (const it of [concurrency, rate, queue]) {
    it.input.min = "0";
    it.input.step = "any";
    it.input.placeholder = "no limit";
  }
  const duration = select(
    "For",
    DURATIONS.map(([value]) => value),
    DURATIONS.map(([, text]) => text),
  );
  return {
    title: `Throttle a class of ${site}`,
    fields: [name, concurrency, rate, queue, duration].map((it) => it.element),
    hand: () => {
      const typed = {
        concurrency: concurrency.input.value,
        rate: rate.input.value,
        bandwidth: "",
        queue: queue.input.value,
        duration: duration.input.value,
      };
      return { kind: "throttle", site, override: typedOverride(classOf(site, name.input.value), typed) };
    },
  };
}

export function releaseQuestion(site: string, classes: readonly string[]): Question {
  const chosen = select("Class", classes);
  return {
    title: `Release a class of ${site}`,
    fields: [chosen.element],
    hand: () => ({ kind: "release", site, class: chosen.input.value }),
  };
}

/** The plan is shown before: what takes effect at once, and what does not. */
export function reloadQuestion(plan: Plan): Question {
  const parts: [string, string[]][] = [
    ["At once:", plan.changes],
    ["Only with `tidegate upgrade`:", plan.upgrade],
    ["Only with a restart:", plan.restart],
    ["Note:", plan.notes],
  ];
  const shown = parts.filter(([, lines]) => lines.length > 0);
  const fields = shown.map(([title, lines]) => {
    const items = lines.map((text) => {
      const item = make("li");
      write(item, text);
      return item;
    });
    return make("div", "plan", make("h3", "", title), make("ul", "", ...items));
  });
  const none = make("p", "", "The file says what is in force already: nothing would change.");
  return {
    title: "Reload the configuration?",
    fields: plan.changes.length + plan.upgrade.length + plan.restart.length > 0 ? fields : [none, ...fields],
    hand: () => ({ kind: "reload" }),
  };
}

function field(text: string, type: string, value: string) {
  const input = make("input");
  input.type = type;
  input.value = value;
  input.autocomplete = "off";
  return { input, element: make("label", "field", `${text} `, input) };
}

function select(text: string, values: readonly string[], labels = values) {
  const input = make("select");
  const options = values.map((value, at) => {
    const option = make("option");
    option.value = value;
    write(option, labels[at] ?? value);
    return option;
  });
  input.append(...options);
  return { input, element: make("label", "field", `${text} `, input) };
}
