// Making elements. Texts go in as text, never as markup: names of classes come from clients.

import { printable } from "./format";

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page lacks #${id}`);
  return element as T;
}

export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className = "",
  ...inside: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...inside);
  return element;
}

/** The name of a class: apart from the text around it, whole in its tool tip. */
export function named(name: string, className = "name"): HTMLElement {
  const shown = printable(name);
  const element = make("bdi", className, shown);
  element.title = shown;
  return element;
}

/** Changes the text only if it differs: what did not change is not announced again. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** A choice of one, as native radio buttons. */
export function choice(
  group: string,
  options: readonly { value: string; label: string | Node }[],
  chosen: string,
  onChange: (value: string) => void,
): HTMLElement[] {
  return options.map(({ value, label }) => {
    const input = make("input");
    input.type = "radio";
    input.name = group;
    input.value = value;
    input.checked = value === chosen;
    input.addEventListener("change", () => onChange(value));
    const around = make("label", "chip", input, typeof label === "string" ? make("span", "", label) : label);
    return around;
  });
}
