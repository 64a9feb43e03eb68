// Relates the page's clock to the hub's with pings. The time of each reply is sent with the next ping,
// so that the hub can compute both one-way delays. Times sent to the hub are `performance.now()`.

import { type ServerEvent, clockPing } from '../protocol/events.js';

/** Number of pings sent without delay at the start; the hub uses the fastest of the recent exchanges. */
const QUICK_PINGS = 4;
const PING_EVERY_MS = 5_000;
/** A hub that leaves this many pings unanswered is gone, as after the machine slept; it was there before. */
const MAX_UNANSWERED = 2;

export class HubClock {
  readonly #send: (event: object) => void;
  readonly #microphoneMs: () => number | null;
  readonly #gone: () => void;
  /** Pings since the last answer; null before the first answer of a connection. */
  #unanswered: number | null = null;
  #pongMs: number | null = null;
  #nPings = 0;
  #timer = 0;

  /**
   * `microphoneMs`: when the first sample of the microphone stream was captured, if there is a microphone. `gone`: the hub
   * does not answer any more.
   */
  constructor(send: (event: object) => void, microphoneMs: () => number | null, gone: () => void) {
    this.#send = send;
    this.#microphoneMs = microphoneMs;
    this.#gone = gone;
  }

  begin(): void {
    this.stop();
    this.#nPings = 0;
    this.#ping();
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#pongMs = this.#unanswered = null;
  }

  take(event: ServerEvent): void {
    if (event.type !== 'antiphon.clock.pong') return;
    this.#pongMs = performance.now();
    this.#unanswered = 0;
    if (this.#nPings < QUICK_PINGS) this.#ping();
  }

  #ping(): void {
    if (this.#unanswered !== null && this.#unanswered++ >= MAX_UNANSWERED) return this.#gone();
    this.#nPings++;
    this.#send(clockPing(performance.now(), this.#pongMs, this.#microphoneMs()));
    this.#pongMs = null;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ping(), PING_EVERY_MS) as unknown as number;
  }
}

/** The part of an `AudioContext` that says when its samples are played. */
export type OutputClock = Pick<AudioContext, 'currentTime'> & {
  outputLatency?: number;
  getOutputTimestamp?: () => { contextTime?: number; performanceTime?: number };
};

/**
 * Firefox asks the audio device for its latency on the main thread, under a lock that the audio thread may wait for: now and
 * then both wait for ever, and the page stands still (seen with 153 ESR in a page that only plays a tone and asks).
 */
const blocksOnLatency = () => /Firefox\//.test(globalThis.navigator?.userAgent ?? '');

/** The page's clock, in ms, when the sample of this context time is heard, including the output latency where it can be asked for. */
export function heardMs(context: OutputClock, atS: number, nowMs: number): number {
  if (blocksOnLatency()) return nowMs + (atS - context.currentTime) * 1000;
  const { contextTime, performanceTime } = context.getOutputTimestamp?.() ?? {};
  // Before the first sample is played, browsers report zero.
  if (contextTime && performanceTime) return performanceTime + (atS - contextTime) * 1000;
  return nowMs + (atS - context.currentTime + (context.outputLatency ?? 0)) * 1000;
}

/** The page's clock, in ms, at a context time of the microphone. */
export function capturedMs(context: OutputClock, atS: number, nowMs: number): number {
  return nowMs - (context.currentTime - atS) * 1000;
}
