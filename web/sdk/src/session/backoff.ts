// The delay before the next reconnection attempt.

const FIRST_MS = 500;
const LONGEST_MS = 8_000;
/** Attempts before the page gives up; together about a minute. */
export const MAX_ATTEMPTS = 10;
/** Jitter, so that the pages of a restarted hub do not reconnect at the same time. */
const SPREAD = 0.2;

/** `attempt` counts from 0; `random` is in [0, 1). */
export function backoffMs(attempt: number, random: number): number {
  const plain = Math.min(LONGEST_MS, FIRST_MS * 2 ** attempt);
  return Math.round(plain * (1 + SPREAD * (2 * random - 1)));
}
