// Elements that are kept and changed in place.

import { make } from "../dom";
import { printable } from "../format";

const SVG = "http://www.w3.org/2000/svg";

/** Writes a text only where it differs: nothing that stays is laid out or announced again. */
export function write(element: Element, text: string): void {
  const shown = printable(text);
  if (element.textContent !== shown) element.textContent = shown;
}

export function setClass(element: Element, name: string): void {
  if (element.getAttribute("class") !== name) element.setAttribute("class", name);
}

export function setAttribute(element: Element, name: string, value: string): void {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

export function show(element: HTMLElement, isShown: boolean): void {
  if (element.hidden === isShown) element.hidden = !isShown;
}

export function svg(tag: string, className = "", ...inside: Element[]): SVGElement {
  const element = document.createElementNS(SVG, tag);
  if (className) element.setAttribute("class", className);
  element.append(...inside);
  return element;
}

/** A box with a picture in it that is stretched to its element. */
export function drawing(width: number, height: number, className: string, ...inside: Element[]): SVGElement {
  const element = svg("svg", className, ...inside);
  element.setAttribute("viewBox", `0 0 ${width} ${height}`);
  element.setAttribute("preserveAspectRatio", "none");
  element.setAttribute("aria-hidden", "true");
  return element;
}

export function button(className: string, text: string, onClick: () => void): HTMLButtonElement {
  const element = make("button", className, text);
  element.type = "button";
  element.addEventListener("click", onClick);
  return element;
}

/**
 * Has the wanted children in this order, and no others. While it is held, those that are there keep their
 * places: what an operator points at must not move away.
 */
export function arrange(parent: Element, wanted: readonly Element[], held = false): void {
  const stay = new Set(wanted);
  for (const child of [...parent.children]) if (!stay.has(child)) child.remove();
  if (held) {
    for (const element of wanted) if (element.parentElement !== parent) parent.append(element);
    return;
  }
  const focused = document.activeElement;
  wanted.forEach((element, at) => {
    if (parent.children[at] !== element) parent.insertBefore(element, parent.children[at] ?? null);
  });
  // An element that is moved loses the focus.
  if (focused !== document.activeElement && focused instanceof HTMLElement && parent.contains(focused)) {
    focused.focus({ preventScroll: true });
  }
}

/** A bar of a share, with a mark where another one would end. */
export class Bar {
  private readonly fill = make("i");
  private readonly mark = make("b");
  readonly element = make("span", "bar", this.fill, this.mark);

  constructor() {
    this.element.setAttribute("aria-hidden", "true");
  }

  set(share: number | null, mark: number | null, kind = ""): void {
    const width = (value: number) => `${Math.round(Math.max(0, Math.min(1, value)) * 1000) / 10}%`;
    const wanted = width(share ?? 0);
    if (this.fill.style.width !== wanted) this.fill.style.width = wanted;
    if (this.fill.className !== kind) this.fill.className = kind;
    this.mark.hidden = mark === null;
    if (mark !== null && this.mark.style.left !== width(mark)) this.mark.style.left = width(mark);
  }
}
