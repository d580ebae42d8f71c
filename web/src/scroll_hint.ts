// A box that scrolls says so: a line above it, shadows at the edges behind which there is more, and a place in the order of
// Tab with a name, so that arrow keys scroll it.

import { setText } from "./dom";

export interface Scrolls {
  wide: boolean;
  long: boolean;
}

/** What the hint says; empty: all is seen. */
export function hintText({ wide, long }: Scrolls): string {
  if (wide && long) return "↔ ↕ Scrolls: there are more columns to the right, and more rows below.";
  if (wide) return "↔ Scrolls: there are more columns to the right.";
  return long ? "↕ Scrolls: there are more rows below." : "";
}

/** Watches the box and what is in it. */
export function hintScroll(box: HTMLElement, hint: HTMLElement, label: string): void {
  const look = () => {
    const wide = box.scrollWidth > box.clientWidth + 1;
    const long = box.scrollHeight > box.clientHeight + 1;
    setText(hint, hintText({ wide, long }));
    hint.hidden = !wide && !long;
    box.dataset["left"] = String(box.scrollLeft > 1);
    box.dataset["right"] = String(box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
    if (wide || long) {
      box.tabIndex = 0;
      box.setAttribute("role", "region");
      box.setAttribute("aria-label", label);
    } else {
      for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
    }
  };
  const sizes = new ResizeObserver(look);
  sizes.observe(box);
  for (const child of box.children) sizes.observe(child);
  box.addEventListener("scroll", look, { passive: true });
}
