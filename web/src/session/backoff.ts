// How long to wait before the next attempt to reconnect.

const FIRST_MS = 500;
const LONGEST_MS = 8_000;
/** Attempts before the page stops by itself; together about a minute. */
export const MAX_ATTEMPTS = 10;
/** Spread, so that all pages of a restarted hub do not return in the same instant. */
const SPREAD = 0.2;

/** `attempt` counts from 0; `random` is in [0, 1). */
export function backoffMs(attempt: number, random: number): number {
  const plain = Math.min(LONGEST_MS, FIRST_MS * 2 ** attempt);
  return Math.round(plain * (1 + SPREAD * (2 * random - 1)));
}
