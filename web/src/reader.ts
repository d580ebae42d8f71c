// Reading JSON that is not trusted.
//
// A reader takes a value and where it stands, and gives the value with its type or throws a
// ReportError that says where and what was expected. Lists are cut at their limits.

const TEXT_MAX = 2000;

/** A number, or null: it is not known. */
export type Maybe = number | null;

export class ReportError extends Error {}

export type Reader<T> = (value: unknown, at: string) => T;

export function wrong(at: string, expected: string): never {
  throw new ReportError(`${at || "the report"}: expected ${expected}`);
}

export const number: Reader<number> = (value, at) =>
  typeof value === "number" && Number.isFinite(value) ? value : wrong(at, "a number");

export const positive: Reader<number> = (value, at) => {
  const read = number(value, at);
  return read > 0 ? read : wrong(at, "a number above zero");
};

export const count: Reader<number> = (value, at) => {
  const read = number(value, at);
  return read >= 0 ? read : wrong(at, "a count");
};

export const text: Reader<string> = (value, at) =>
  typeof value === "string" ? value.slice(0, TEXT_MAX) : wrong(at, "a text");

export const boolean: Reader<boolean> = (value, at) =>
  typeof value === "boolean" ? value : wrong(at, "true or false");

export function oneOf<T extends string>(words: readonly T[]): Reader<T> {
  return (value, at) => words.find((word) => word === value) ?? wrong(at, `one of ${words.join(", ")}`);
}

export function maybe<T>(read: Reader<T>): Reader<T | null> {
  return (value, at) => (value === null || value === undefined ? null : read(value, at));
}

/** A list that may be absent, cut at its limit. */
export function list<T>(read: Reader<T>, max: number): Reader<T[]> {
  return (value, at) => {
    if (value === null || value === undefined) return [];
    if (!Array.isArray(value)) return wrong(at, "a list");
    return value.slice(0, max).map((item: unknown, index) => read(item, `${at}[${index}]`));
  };
}

export function object<T>(fields: { [K in keyof T]-?: Reader<T[K]> }): Reader<T> {
  const entries = Object.entries(fields) as [string, Reader<unknown>][];
  return (value, at) => {
    if (typeof value !== "object" || value === null || Array.isArray(value)) return wrong(at, "an object");
    const members = value as Record<string, unknown>;
    const read = entries.map(([name, field]) => {
      const member = Object.hasOwn(members, name) ? members[name] : undefined;
      return [name, field(member, at ? `${at}.${name}` : name)];
    });
    return Object.fromEntries(read) as T;
  };
}

/** Values by name, cut at its limit. */
export function record<T>(read: Reader<T>, max: number): Reader<Record<string, T>> {
  return (value, at) => {
    if (value === null || value === undefined) return {};
    if (typeof value !== "object" || Array.isArray(value)) return wrong(at, "an object");
    const members = Object.entries(value).slice(0, max);
    return Object.fromEntries(members.map(([name, member]) => [name, read(member, `${at}.${name}`)]));
  };
}

export const some = maybe(number);
