// Reads JSON of which nothing is certain: a value that is missing or of an unexpected type becomes null
// or empty, so that the view needs no checks.

export type Json = Record<string, unknown>;

export function json(value: unknown): Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : {};
}

export function list(value: unknown): Json[] {
  return Array.isArray(value) ? value.map(json) : [];
}

export function textList(value: unknown): string[] {
  return Array.isArray(value) ? value.filter(isText) : [];
}

export function text(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}

export function number(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}

function only<T>(value: unknown, fits: (value: unknown) => value is T): Record<string, T> {
  const entries = Object.entries(json(value)).filter((entry): entry is [string, T] => fits(entry[1]));
  return Object.fromEntries(entries);
}

/** Known keys first, in the order of a turn, because JSON objects are unordered. */
export function inOrder<T>(values: Record<string, T>, first: readonly string[]): Record<string, T> {
  const known = first.filter((key) => key in values);
  return Object.fromEntries([...known, ...Object.keys(values).filter((key) => !first.includes(key))].map((key) => [key, values[key] as T]));
}

const isNumber = (value: unknown): value is number => number(value) !== null;
const isText = (value: unknown): value is string => typeof value === 'string';
export const numbers = (value: unknown) => only(value, isNumber);
export const texts = (value: unknown) => only(value, isText);
export const plain = (value: unknown) => only(value, (it): it is number | string => isNumber(it) || isText(it));
