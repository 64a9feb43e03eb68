// Measures the latency of a turn where it matters: from the last loud sample of the microphone (or the sending of typed
// text) to the first sound of the response.

import type { ServerEvent } from '../protocol/events.js';

/** Times on the context's clock, in seconds. */
export interface Span {
  fromS: number;
  toS: number;
}

/** Speech starts at most this long before the hub reports it. */
const BEFORE_START_S = 1;
/** Margin after the end reported by the hub, for the blocks of capture and codec. */
const AFTER_END_S = 0.1;

/** Follows one turn at a time: from the end of the user's turn to the first sound of the response. */
export class TurnClock {
  #startedS: number | null = null;
  #move: { spoken: Span } | { typedS: number } | null = null;

  /** `micStartS`: context time of the microphone stream's first sample, the origin of the hub's times. */
  heard(event: ServerEvent, nowS: number, micStartS: number | null): void {
    if (event.type === 'input_audio_buffer.speech_started') {
      this.#startedS = nowS;
      this.#move = null;
    }
    if (event.type !== 'input_audio_buffer.speech_stopped' || this.#startedS === null) return;
    const endS = micStartS === null ? nowS : micStartS + event.audio_end_ms / 1000 + AFTER_END_S;
    const sane = endS > this.#startedS - BEFORE_START_S && endS < nowS;
    this.#move = { spoken: { fromS: this.#startedS - BEFORE_START_S, toS: sane ? endS : nowS } };
  }

  typed(nowS: number): void {
    this.#move = { typedS: nowS };
  }

  /** Latency in ms of the response that is now audible, once per turn; `lastLoud` searches the microphone's peaks. */
  sounded(atS: number, lastLoud: (span: Span) => number | null): number | null {
    const move = this.#move;
    if (move === null) return null;
    this.#move = null;
    const fromS = 'typedS' in move ? move.typedS : lastLoud(move.spoken);
    return fromS === null || atS < fromS ? null : (atS - fromS) * 1000;
  }
}
