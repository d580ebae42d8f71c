// Parts of a resource's use, one upon the other.
//
//   part'(t) = part(t) x min(1, used(t) / sum of parts(t))       never more than was used
//   rest(t)  = used(t) - sum of part'(t)
//
// The largest parts have layers of their own, the others one together. A step where the use is not
// known is a gap in all layers.

import { type Maybe, type Resource, mean } from "./report";

/** Layers with a name of their own. */
export const LAYERS_MAX = 6;

export interface Layer {
  kind: "class" | "others" | "rest";
  name: string;
  /** What it uses, by step. */
  used: Maybe[];
  /** Its upper bound in the stack, by step. */
  top: Maybe[];
  /** Mean share of the capacity. */
  share: Maybe;
}

/** Layers from the bottom up: classes, the largest first, then other classes, then the rest. */
export function stack(resource: Resource): Layer[] {
  const parts = resource.parts
    .map((part) => ({ ...part, mean: mean(part.used) ?? 0 }))
    .filter((part) => part.mean > 0)
    .sort((a, b) => b.mean - a.mean || (a.class < b.class ? -1 : 1));
  const fit = resource.used.map((used, step) => {
    const sum = parts.reduce((all, part) => all + Math.max(0, part.used[step] ?? 0), 0);
    return used === null ? null : sum > used ? Math.max(0, used) / sum : 1;
  });
  const fitted = (used: readonly Maybe[]) =>
    fit.map((factor, step) => (factor === null ? null : Math.max(0, used[step] ?? 0) * factor));
  const layers: Pick<Layer, "kind" | "name" | "used">[] = parts
    .slice(0, LAYERS_MAX)
    .map((part) => ({ kind: "class", name: part.class, used: fitted(part.used) }));
  const others = parts.slice(LAYERS_MAX).map((part) => fitted(part.used));
  if (others.length) {
    const used = fit.map((factor, step) =>
      factor === null ? null : others.reduce((sum, part) => sum + (part[step] ?? 0), 0),
    );
    layers.push({ kind: "others", name: `${others.length} more`, used });
  }
  layers.push({ kind: "rest", name: "everything else", used: rest(resource.used, layers) });
  return summed(layers, resource.capacity);
}

function rest(used: readonly Maybe[], layers: readonly { used: Maybe[] }[]): Maybe[] {
  return used.map((value, step) => {
    if (value === null) return null;
    const named = layers.reduce((sum, layer) => sum + (layer.used[step] ?? 0), 0);
    return Math.max(0, value - named);
  });
}

function summed(layers: Pick<Layer, "kind" | "name" | "used">[], capacity: number): Layer[] {
  let below: Maybe[] = [];
  return layers.map((layer) => {
    const top: Maybe[] = layer.used.map((value, step) =>
      value === null ? null : value + (below[step] ?? 0),
    );
    below = top;
    const used = mean(layer.used);
    return { ...layer, top, share: used === null ? null : used / capacity };
  });
}

/** The same in at most so many steps, each the mean of what is known in it. */
export function coarse(resource: Resource, steps: number): Resource {
  const together = Math.ceil(resource.used.length / steps);
  if (together <= 1) return resource;
  const merged = (values: readonly Maybe[]) => {
    const count = Math.ceil(values.length / together);
    return Array.from({ length: count }, (_, at) => mean(values.slice(at * together, (at + 1) * together)));
  };
  return {
    ...resource,
    step_seconds: resource.step_seconds * together,
    // A mean stands in the middle of what it is of.
    t0: resource.t0 + (resource.step_seconds * (together - 1)) / 2,
    used: merged(resource.used),
    parts: resource.parts.map((part) => ({ ...part, used: merged(part.used) })),
  };
}

/** Times of the steps of a resource. */
export function times(resource: Resource): number[] {
  return resource.used.map((_, step) => resource.t0 + step * resource.step_seconds);
}
