// Latency breakdown of a turn, from two sources: the page's own measurement (last loud microphone
// sample to first response sound) and the hub's timeline, whose marks count from the end of speech.

import type { Hops, ServerEvent, TimelineMarks } from '../protocol/events';

export interface Segment {
  /** Key of the stage, which selects its colour. */
  key: 'wait' | 'hear' | 'think' | 'phrase' | 'voice' | 'hop' | 'send' | 'play';
  label: string;
  ms: number;
}

/** The marks in the order of a turn, each with the activity before it. */
const STAGES: [keyof TimelineMarks, Segment['key'], string][] = [
  ['end_confirmed', 'wait', 'waiting for the end of your turn'],
  ['stt_final', 'hear', 'recognising'],
  ['llm_first_token', 'think', 'thinking'],
  ['first_chunk', 'phrase', 'first phrase'],
  ['tts_first_audio', 'voice', 'voicing'],
  ['first_audio_sent', 'send', 'sending'],
];

/** The network's share of the time before a mark. */
const HOPS: Partial<Record<keyof TimelineMarks, keyof Hops>> = { stt_final: 'stt_network_ms', tts_first_audio: 'tts_network_ms' };

/** Speculative work has a mark before that of its predecessor and contributes no time. */
export function segments(marks: TimelineMarks | null, pageMs: number | null, hops: Hops = {}): Segment[] {
  const found: Segment[] = [];
  let until = marks?.speech_end ?? 0;
  for (const [mark, key, label] of STAGES) {
    const at = marks?.[mark];
    if (at === undefined || at <= until) continue;
    const hop = HOPS[mark];
    const networkMs = Math.min((hop && hops[hop]) ?? 0, at - until);
    if (at - until > networkMs) found.push({ key, label, ms: at - until - networkMs });
    if (networkMs > 0) found.push({ key: 'hop', label: 'to a worker and back', ms: networkMs });
    until = at;
  }
  if (pageMs !== null && marks && pageMs > until) found.push({ key: 'play', label: 'network and playback', ms: pageMs - until });
  return found;
}

/** The latency to show: the page's own measurement if there is one, otherwise the hub's. */
export function shownLatency(marks: TimelineMarks | null, pageMs: number | null): number | null {
  return pageMs ?? marks?.first_audio_sent ?? null;
}

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
