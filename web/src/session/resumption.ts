// Whether a broken connection's session may still be taken up, and when to try next. Reads no clock.

import { backoffMs } from './backoff';
import { Closed, type Ticket } from './connection';

/** A session waits for half a minute: the way back to it is tried more often than the way to a new one. */
const LONGEST_WAIT_MS = 2_000;

export class Resumption {
  #ticket: Ticket | null = null;
  #untilMs = 0;
  #nTries = 0;

  /** Of the connection that broke first. */
  get ticket(): Ticket | null {
    return this.#ticket;
  }

  /** A connection ended: may its session, or the one it was to take up, still be taken up? */
  lost(ticket: Ticket | null, how: { opened: boolean; code: number }, nowMs: number): boolean {
    if (this.#ticket === null && ticket !== null) {
      this.#ticket = ticket;
      this.#untilMs = nowMs + ticket.withinMs;
    }
    const broke = !how.opened || how.code === Closed.abnormal || how.code === Closed.dead;
    return broke && this.#ticket !== null && nowMs < this.#untilMs;
  }

  /** When the hub lets the session go, on the clock of `lost`. */
  get untilMs(): number {
    return this.#untilMs;
  }

  /** Before the next try; the first is made at once. */
  delayMs(random: number): number {
    const nTries = this.#nTries++;
    return nTries === 0 ? 0 : Math.min(LONGEST_WAIT_MS, backoffMs(nTries - 1, random));
  }

  /** The session goes on, or is given up. */
  over(): void {
    this.#ticket = null;
    this.#nTries = 0;
  }
}
