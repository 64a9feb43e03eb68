// Latency breakdown of a turn, from two sources: the client's own measurement (last loud microphone
// sample to first response sound) and the hub's timeline, whose marks count from the end of speech.

import type { Hops, TimelineMarks } from '@antiphon/client';

export interface Segment {
  /** Key of the stage, which selects its colour. */
  key: 'wait' | 'hear' | 'think' | 'phrase' | 'voice' | 'hop' | 'send' | 'play';
  ms: number;
}

export const LABELS: Record<Segment['key'], string> = {
  wait: 'waiting for the end of your turn',
  hear: 'recognising',
  think: 'thinking',
  phrase: 'first phrase',
  voice: 'voicing',
  hop: 'to a worker and back',
  send: 'sending',
  play: 'network and playback',
};

/** The marks in the order of a turn, each with the stage before it. */
const STAGES: [keyof TimelineMarks, Segment['key']][] = [
  ['end_confirmed', 'wait'],
  ['stt_final', 'hear'],
  ['llm_first_token', 'think'],
  ['first_chunk', 'phrase'],
  ['tts_first_audio', 'voice'],
  ['first_audio_sent', 'send'],
];

/** The network's share of the time before a mark. */
const HOPS: Partial<Record<keyof TimelineMarks, keyof Hops>> = { stt_final: 'stt_network_ms', tts_first_audio: 'tts_network_ms' };

/** Speculative work has a mark before that of its predecessor and contributes no time. */
export function segments(marks: TimelineMarks | null, pageMs: number | null, hops: Hops = {}): Segment[] {
  const found: Segment[] = [];
  let until = marks?.speech_end ?? 0;
  for (const [mark, key] of STAGES) {
    const at = marks?.[mark];
    if (at === undefined || at <= until) continue;
    const hop = HOPS[mark];
    const networkMs = Math.min((hop && hops[hop]) ?? 0, at - until);
    if (at - until > networkMs) found.push({ key, ms: at - until - networkMs });
    if (networkMs > 0) found.push({ key: 'hop', ms: networkMs });
    until = at;
  }
  if (pageMs !== null && marks && pageMs > until) found.push({ key: 'play', ms: pageMs - until });
  return found;
}

/** The latency to show: the page's own measurement if there is one, otherwise the hub's. */
export function shownLatency(marks: TimelineMarks | null, pageMs: number | null): number | null {
  return pageMs ?? marks?.first_audio_sent ?? null;
}
