// Latency breakdown of a turn, from two sources: the client's own measurement (last loud microphone
// sample to first response sound) and the hub's timeline, whose marks count from the end of speech.

import type { Hops, TimelineMarks } from '@antiphon/client';

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
