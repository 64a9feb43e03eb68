// Where a turn's milliseconds went. Two measures meet here: the page's own (last loud microphone
// sample to first reply sound) and the hub's timeline, whose marks count from the end of speech.

import type { ServerEvent, TimelineMarks } from '../protocol/events';

export interface Segment {
  /** Key of the stage, for its colour. */
  key: 'wait' | 'hear' | 'think' | 'phrase' | 'voice' | 'send' | 'play';
  label: string;
  ms: number;
}

/** The marks in the order of a turn, each with what was being done until it. */
const STAGES: [keyof TimelineMarks, Segment['key'], string][] = [
  ['end_confirmed', 'wait', 'waiting for the end of your turn'],
  ['stt_final', 'hear', 'recognising'],
  ['llm_first_token', 'think', 'thinking'],
  ['first_chunk', 'phrase', 'first phrase'],
  ['tts_first_audio', 'voice', 'voicing'],
  ['first_audio_sent', 'send', 'sending'],
];

/** Work done early, on a guess, has a mark before its predecessor's and takes no time of its own. */
export function segments(marks: TimelineMarks | null, pageMs: number | null): Segment[] {
  const found: Segment[] = [];
  let until = marks?.speech_end ?? 0;
  for (const [mark, key, label] of STAGES) {
    const at = marks?.[mark];
    if (at === undefined || at <= until) continue;
    found.push({ key, label, ms: at - until });
    until = at;
  }
  if (pageMs !== null && marks && pageMs > until) found.push({ key: 'play', label: 'network and playback', ms: pageMs - until });
  return found;
}

/** The number to show: the page's own measure where it has one, else the hub's. */
export function shownLatency(marks: TimelineMarks | null, pageMs: number | null): number | null {
  return pageMs ?? marks?.first_audio_sent ?? null;
}

/** Times on the context's clock, in seconds. */
export interface Span {
  fromS: number;
  toS: number;
}

/** Speech begins up to this long before the hub says so. */
const BEFORE_START_S = 1;
/** Room after the hub's date of the end, for the blocks of capture and codec. */
const AFTER_END_S = 0.1;

/** Follows one turn at a time: where the user's move ended, until the reply to it first sounds. */
export class TurnClock {
  #startedS: number | null = null;
  #move: { spoken: Span } | { typedS: number } | null = null;

  /** `micStartS`: context time of the microphone stream's first sample, from which the hub counts. */
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

  /** Latency in ms of the reply that sounds now, once a turn; `lastLoud` looks the microphone up. */
  sounded(atS: number, lastLoud: (span: Span) => number | null): number | null {
    const move = this.#move;
    if (move === null) return null;
    this.#move = null;
    const fromS = 'typedS' in move ? move.typedS : lastLoud(move.spoken);
    return fromS === null || atS < fromS ? null : (atS - fromS) * 1000;
  }
}
