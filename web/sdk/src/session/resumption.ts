// Decides whether the session of a lost connection can still be resumed, and when to try next. Reads no clock.

import { Closed } from './connection.js';
import type { Outbox } from './outbox.js';

const FIRST_WAIT_MS = 100;
const LONGEST_WAIT_MS = 2_000;

export class Resumption {
  #outbox: Outbox | null = null;
  #untilMs = 0;
  #nTries = 0;

  /** The outbox of the session whose connection was lost; null while there is nothing to resume. */
  get outbox(): Outbox | null {
    return this.#outbox;
  }

  /** A connection was lost: returns whether its session, or the one it was to resume, can still be resumed. */
  lost(outbox: Outbox | null, how: { opened: boolean; code: number }, nowMs: number): boolean {
    if (this.#outbox === null && outbox !== null) {
      this.#outbox = outbox;
      this.#untilMs = nowMs + outbox.withinMs;
    }
    const broke = !how.opened || how.code === Closed.abnormal || how.code === Closed.dead || how.code === Closed.moved;
    return broke && this.#outbox !== null && nowMs < this.#untilMs;
  }

  /** When the hub discards the session, on the clock of `lost`. */
  get untilMs(): number {
    return this.#untilMs;
  }

  /**
   * Delay before the next attempt: the first one is immediate, the pauses double and vary by half, so that the pages of a
   * hub that stopped do not come back at the same time. `random` is in [0, 1).
   */
  delayMs(random: number): number {
    const nTries = this.#nTries++;
    return nTries === 0 ? 0 : Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** (nTries - 1)) * (0.5 + random / 2);
  }

  /** The session was resumed or given up. */
  over(): void {
    this.#outbox = null;
    this.#nTries = 0;
  }
}
