// Formats numbers and names for display.

import type { Cluster, StageModel, Worker } from './cluster';
import type { Measure } from './percentiles';
import type { Order, Show } from './query';
import type { Mark, Stage, Status, Turn } from './turn';

/** 0.03 -> "0 ms", 0.42 -> "0.4 ms", 312.4 -> "312 ms", 2340 -> "2.34 s". */
export function duration(ms: number): string {
  if (Math.abs(ms) >= 60_000) return `${(ms / 60_000).toFixed(1)} min`;
  if (Math.abs(ms) >= 999.5) return `${(ms / 1_000).toFixed(2)} s`;
  if (Math.abs(ms) >= 9.95 || Math.abs(ms) < 0.05) return `${Math.round(ms)} ms`;
  return `${ms.toFixed(1)} ms`;
}

export function bytes(n: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = n;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit] ?? ''}`;
}

/** Rounds down, so that only 1 is shown as 100 %: 0.9996 -> "99.9 %". */
export function percent(share: number): string {
  const value = share < 1 ? Math.min(share * 100, 99.9) : 100;
  return `${value.toFixed(value > 10 && value < 99.5 ? 0 : 1).replace(/\.0$/, '')} %`;
}

export const clock = (at: number) => new Date(at).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });

/** Description of each stage, in the terms of the chat page. */
export const STAGE_WORDS: Record<Stage, { name: string; does: string }> = {
  endpointing: { name: 'Endpointing', does: 'waiting for the end of the turn' },
  stt: { name: 'Transcript', does: 'speech to text, after the end' },
  queue: { name: 'Queue', does: 'waiting for a free engine' },
  llm: { name: 'Model', does: 'until its first token' },
  chunking: { name: 'Phrase', does: 'until there is enough to speak' },
  tts: { name: 'Voice', does: 'text to speech, first sound' },
  network: { name: 'Network', does: 'to a worker and back' },
  sending: { name: 'Sending', does: 'until the first audio is sent' },
  playback: { name: 'Playback', does: 'way to the listener and loudspeaker' },
};

export const measureName = (measure: Measure) => (measure === 'voice_to_voice' ? 'Voice to voice' : STAGE_WORDS[measure].name);

export const MARK_WORDS: Record<Mark, string> = {
  speech_end: 'speech ended',
  end_confirmed: 'end confirmed',
  stt_final: 'final transcript',
  response_started: 'response started',
  llm_first_token: 'first token',
  first_chunk: 'first phrase',
  tts_first_audio: 'first sound synthesized',
  first_audio_sent: 'first sound sent',
  first_audio_heard: 'first sound heard',
};

export const STATUS_WORDS: Record<Status, string> = {
  listening: 'listening',
  answering: 'answering',
  completed: 'answered',
  cancelled: 'cut off',
  incomplete: 'incomplete',
  failed: 'failed',
  unanswered: 'not answered',
};

export const SHOW_WORDS: Record<Show, string> = {
  all: 'All turns',
  failed: 'Failed',
  slow: 'Slower than 2 s',
  interrupted: 'Interrupted',
  unanswered: 'Not answered',
};

export function orderName(order: Order): string {
  if (order === 'newest') return 'Newest first';
  if (order === 'oldest') return 'Oldest first';
  return order === 'voice_to_voice' ? 'Slowest first' : `Slowest: ${STAGE_WORDS[order].name}`;
}

export const KIND_WORDS: Record<string, string> = { speech: 'spoken', typed: 'typed', tool: 'result of a tool', idle: 'after silence' };

/** "−12 %", "+3 %": a change in per cent; "–" where there is nothing to compare. */
export function change(before: number | null, now: number | null): string {
  if (before === null || now === null || before <= 0) return '–';
  const share = Math.round((now / before - 1) * 100);
  return share === 0 ? '±0 %' : `${share < 0 ? '−' : '+'}${Math.abs(share)} %`;
}

export const OUTCOME_WORDS: Record<string, string> = {
  confirmed: 'confirmed: the turn was over',
  resumed: 'dropped: the user continued to speak',
  changed: 'dropped: the final transcript differed',
  refused: 'not started: no capacity',
};

/** The workers that served a turn, as name and value; nothing where the engines run in the hub. */
export function workerFacts({ workers, retried }: Turn): [string, string][] {
  const served = Object.entries(workers).map(([stage, worker]): [string, string] => [`${stage} worker`, worker]);
  return retried === 0 ? served : [...served, ['failed attempts before', String(retried)]];
}

/** How long something has lasted: "8 s", "3 min", "5 h", "12 d". */
export function age(ms: number): string {
  const s = Math.max(0, ms) / 1000;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3_600) return `${Math.floor(s / 60)} min`;
  return s < 86_400 ? `${Math.floor(s / 3_600)} h` : `${Math.floor(s / 86_400)} d`;
}

/** A clock that is this far off shifts the start times of turns. */
const CLOCK_OFF_MS = 2_000;

/** A warning about another machine's clock, or null. */
export function clockNote(offsetMs: number): string | null {
  if (Math.abs(offsetMs) <= CLOCK_OFF_MS) return null;
  return `its clock is ${duration(Math.abs(offsetMs))} ${offsetMs > 0 ? 'ahead of' : 'behind'} this hub's`;
}

/** Workers advertise four times a second. */
const SILENT_MS = 500;

/** What is wrong with a worker, the worst first; empty if nothing is. */
export function workerWarnings(worker: Worker): string[] {
  const silent = worker.silentMs > SILENT_MS ? `not heard for ${duration(worker.silentMs)}` : null;
  return [worker.refused, silent, clockNote(worker.clockOffsetMs)].filter((note) => note !== null);
}

/** What is to be said about the model of a stage; null: a worker serves it, or has no other to stand in for it. */
export function modelWarning({ stage, model, fallback, isServed, isFallbackServed }: StageModel): string | null {
  if (isServed || fallback === null) return null;
  const instead = isFallbackServed ? `the fallback ${fallback} takes its requests` : `nor the fallback ${fallback}`;
  return `No worker serves ${model}, the model of ${stage}${isFallbackServed ? '; ' : ', '}${instead}.`;
}

/** The connection to NATS in words. */
export function linkWords({ isConnected, sinceMs, server, serverVersion }: Cluster): string {
  // A server without a name of its own has its public key for one.
  const name = [/^N[A-Z2-7]{55}$/.test(server) ? '' : server, serverVersion].filter((part) => part !== '').join(' ');
  if (isConnected) return `Connected to NATS${name === '' ? '' : ` (${name})`} for ${age(sinceMs)}.`;
  return `Not connected to NATS for ${age(sinceMs)}: this hub reaches neither workers nor other hubs.`;
}

/** Requests sent to workers, by what became of them. */
export const CLUSTER_COUNTS: Record<string, string> = {
  attempts: 'sent to workers',
  retried: 'sent again, to another worker',
  busy: 'refused by a busy worker',
  failed: 'failed: workers lost',
  away: 'failed: no worker, or no connection',
};

/** Names of fields that the hub may add: `stt_decoder_ms` -> "stt decoder". */
export const fieldName = (key: string) => key.replace(/^n_/, '').replace(/_(ms|db|semitones|tokens)$/, '').replaceAll('_', ' ');

/** The value of such a field with the unit from its name. */
export function fieldValue(key: string, value: number | string): string {
  if (typeof value === 'string') return value;
  if (key.endsWith('_ms')) return duration(value);
  if (key.endsWith('_db')) return `${value.toFixed(1)} dB`;
  if (key.endsWith('_semitones')) return `${value.toFixed(1)} semitones`;
  if (key.endsWith('probability') || key === 'completeness') return percent(value);
  return Number.isInteger(value) ? String(value) : value.toFixed(2);
}
