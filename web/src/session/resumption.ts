// Decides whether the session of a lost connection can still be resumed, and when to try next. Reads no clock.

import { backoffMs } from './backoff';
import { Closed, type Ticket } from './connection';

/** A session is kept for 30 s, so resuming is retried more often than opening a new session. */
const LONGEST_WAIT_MS = 2_000;

export class Resumption {
  #ticket: Ticket | null = null;
  #untilMs = 0;
  #nTries = 0;

  /** The ticket of the connection that was lost first. */
  get ticket(): Ticket | null {
    return this.#ticket;
  }

  /** A connection was lost: returns whether its session, or the one it was to resume, can still be resumed. */
  lost(ticket: Ticket | null, how: { opened: boolean; code: number }, nowMs: number): boolean {
    if (this.#ticket === null && ticket !== null) {
      this.#ticket = ticket;
      this.#untilMs = nowMs + ticket.withinMs;
    }
    const broke = !how.opened || how.code === Closed.abnormal || how.code === Closed.dead;
    return broke && this.#ticket !== null && nowMs < this.#untilMs;
  }

  /** When the hub discards the session, on the clock of `lost`. */
  get untilMs(): number {
    return this.#untilMs;
  }

  /** Delay before the next attempt; the first one is immediate. */
  delayMs(random: number): number {
    const nTries = this.#nTries++;
    return nTries === 0 ? 0 : Math.min(LONGEST_WAIT_MS, backoffMs(nTries - 1, random));
  }

  /** The session was resumed or given up. */
  over(): void {
    this.#ticket = null;
    this.#nTries = 0;
  }
}
