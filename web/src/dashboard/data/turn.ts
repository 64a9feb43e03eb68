// Turns and states of the hub, as returned by `/api/turns` and `/api/state`. All times of a turn are
// milliseconds from the end of the user's speech. Missing values and values of an unexpected type
// become null or empty here, so that the view needs no checks.

import { type Json, inOrder, json, list, number, numbers, plain, text, textList, texts } from './json';

export const STAGES = ['endpointing', 'stt', 'queue', 'llm', 'chunking', 'tts', 'network', 'sending', 'playback'] as const;
export type Stage = (typeof STAGES)[number];

export const MARKS = [
  'speech_end',
  'end_confirmed',
  'stt_final',
  'response_started',
  'llm_first_token',
  'first_chunk',
  'tts_first_audio',
  'first_audio_sent',
  'first_audio_heard',
] as const;
export type Mark = (typeof MARKS)[number];

const STATUSES = ['listening', 'answering', 'completed', 'cancelled', 'incomplete', 'failed', 'unanswered'] as const;
export type Status = (typeof STATUSES)[number];

export interface Span {
  stage: Stage;
  fromMs: number;
  /** Null while it is running. */
  toMs: number | null;
  /** Number of the speculative response it worked for; null: the confirmed turn. */
  speculation: number | null;
}

export interface Speculation {
  fromMs: number;
  toMs: number | null;
  /** confirmed, resumed, changed, refused; null while it is open. */
  outcome: string | null;
}

export interface Turn {
  id: string;
  /** The answer; null where there is none. */
  responseId: string | null;
  sessionId: string;
  /** How its session is reached: websocket, webrtc, rtvi, or the peer of a phone call. Empty: an older hub does not say. */
  transport: string;
  number: number;
  /** Milliseconds since 1970. */
  startedAt: number;
  kind: string;
  status: Status;
  error: string | null;
  bargedIn: boolean;
  transcript: string | null;
  /** The language of the transcript, where the recognizer names it. */
  language: string | null;
  /** What was said while the answer was late, and when. */
  filler: { text: string; atMs: number } | null;
  reply: string | null;
  heard: string | null;
  marks: Partial<Record<Mark, number>>;
  voiceToVoiceMs: number | null;
  heardBy: string | null;
  /** The critical path: contiguous, from 0 to the voice-to-voice latency. */
  parts: Span[];
  /** All stages that ran, overlapping. */
  stages: Span[];
  waits: Record<string, number>;
  speculations: Speculation[];
  wastedMs: number;
  endpointing: Record<string, number | string>;
  audio: Record<string, number>;
  engines: Record<string, string>;
  /** The workers that served the turn, by stage; empty where the engines run in the hub. */
  workers: Record<string, string>;
  /** Attempts that other workers had failed at before. */
  retried: number;
  /** The hub that the turn was on; null where there is no cluster. */
  hub: string | null;
  usage: Record<string, number>;
  /** Busy time of the hub's own engines, in all and by stage; empty where they report none. */
  cost: Record<string, number>;
  /** The hub keeps the microphone's sound of it. */
  isRecorded: boolean;
  /** As the hub sent it, for exports. */
  record: Json;
}

export interface Gpu {
  name: string;
  /** Utilization in per cent of time. */
  utilization: number | null;
  memoryBytes: number | null;
  memoryTotalBytes: number | null;
}

/** The hub's load, and what it does without. */
export interface Load {
  /** The brownout level: 0 (normal) to 6. */
  brownout: number;
  level: string;
  /** Each signal as a share of its limit. */
  pressure: Record<string, number>;
}

export interface HubState {
  /** Milliseconds since 1970, on the hub's clock. */
  at: number;
  sessions: number;
  connections: number;
  queues: Record<string, number>;
  engines: Record<string, string>;
  /** How close the hub is to its capacity; null: it does not report that. */
  load: Load | null;
  cpuPercent: number | null;
  memoryBytes: number | null;
  /** Null: the machine has no GPU, or none visible to the hub or to this key. */
  gpus: Gpu[] | null;
  counters: Record<string, number>;
}

/** Null if the identifier or the date is missing: such a turn cannot be shown. */
export function turnFrom(body: unknown): Turn | null {
  const it = json(body);
  const startedAt = Date.parse(text(it['started_at']) ?? '');
  const id = text(it['id']);
  if (id === null || Number.isNaN(startedAt)) return null;
  return {
    id,
    responseId: text(it['response_id']),
    startedAt,
    sessionId: text(it['session_id']) ?? '',
    transport: text(it['transport']) ?? '',
    number: number(it['turn']) ?? 0,
    kind: text(it['kind']) ?? 'speech',
    status: STATUSES.find((status) => status === it['status']) ?? 'answering',
    error: text(it['error']),
    bargedIn: it['barged_in'] === true,
    transcript: text(it['transcript']),
    language: text(it['language']),
    filler: fillerFrom(json(it['filler'])),
    reply: text(it['reply']),
    heard: text(it['heard']),
    marks: numbers(it['marks']),
    voiceToVoiceMs: number(it['voice_to_voice_ms']),
    heardBy: text(it['heard_by']),
    parts: spans(it['parts']),
    stages: spans(it['stages']),
    waits: numbers(it['waits']),
    speculations: list(it['speculations']).map((speculation) => ({
      fromMs: number(speculation['from_ms']) ?? 0,
      toMs: number(speculation['to_ms']),
      outcome: text(speculation['outcome']),
    })),
    wastedMs: number(it['wasted_ms']) ?? 0,
    endpointing: plain(it['endpointing']),
    audio: inOrder(numbers(it['audio']), ['generated_ms', 'sent_ms', 'heard_ms']),
    engines: inOrder(texts(it['engines']), ['vad', 'stt', 'llm', 'tts']),
    workers: texts({ stt: it['stt_worker'], tts: it['tts_worker'] }),
    retried: number(it['retried']) ?? 0,
    hub: text(it['hub']),
    usage: numbers(it['usage']),
    cost: costFrom(json(it['cost'])),
    isRecorded: it['recording'] !== null && it['recording'] !== undefined,
    record: it,
  };
}

function fillerFrom(filler: Json): Turn['filler'] {
  const words = text(filler['text']);
  return words === null ? null : { text: words, atMs: number(filler['at_ms']) ?? 0 };
}

/** The totals, and the time of each stage on any processor. */
function costFrom(cost: Json): Record<string, number> {
  const stages = ['stt', 'llm', 'tts', 'filler'].map((stage) => [`${stage}_ms`, numbers(cost[stage])] as const);
  const used = stages.filter(([, times]) => Object.keys(times).length > 0);
  return { ...numbers(cost), ...Object.fromEntries(used.map(([name, times]) => [name, (times['cpu_ms'] ?? 0) + (times['gpu_ms'] ?? 0)])) };
}

/** One page of the hub's list; `before` is the cursor of the next page, or null. `missingHubs` did not reply to this one. */
export function pageFrom(body: unknown): { turns: Turn[]; capacity: number | null; before: string | null; missingHubs: string[] } {
  const it = json(body);
  const turns = list(it['turns']).flatMap((turn) => turnFrom(turn) ?? []);
  const last = list(it['turns']).at(-1);
  const before = it['has_more'] === true && last !== undefined ? (text(it['next']) ?? text(last['id'])) : null;
  return { turns, capacity: number(it['capacity']), before, missingHubs: textList(it['missing_hubs']) };
}

export function stateFrom(body: unknown): HubState | null {
  const it = json(body);
  const at = Date.parse(text(it['at']) ?? '');
  if (Number.isNaN(at)) return null;
  const process = json(it['process']);
  const gpus = Array.isArray(it['gpu']) ? list(it['gpu']) : [];
  return {
    at,
    sessions: number(it['sessions']) ?? 0,
    connections: number(it['connections']) ?? 0,
    queues: numbers(it['queues']),
    engines: texts(it['engines']),
    load: loadFrom(json(it['load'])),
    cpuPercent: number(process['cpu_percent']),
    memoryBytes: number(process['memory_bytes']),
    gpus: gpus.length === 0 ? null : gpus.map(gpuFrom),
    counters: numbers(it['counters']),
  };
}

/** Queues measured in bytes cannot be added to queues measured in items. */
export const isBytes = (queue: string) => queue.endsWith('_kib');

/** What waits in all queues; null where the hub reports none, as to a key that may not see them. */
export function queuedOf({ queues }: HubState): number | null {
  const depths = Object.entries(queues).filter(([name]) => !isBytes(name));
  return depths.length === 0 ? null : depths.reduce((sum, [, depth]) => sum + depth, 0);
}

function loadFrom(it: Json): Load | null {
  const [brownout, level] = [number(it['brownout']), text(it['level'])];
  return brownout === null || level === null ? null : { brownout, level, pressure: numbers(it['pressure']) };
}

function gpuFrom(it: Json): Gpu {
  return {
    name: text(it['name']) ?? 'GPU',
    utilization: number(it['utilization']),
    memoryBytes: number(it['memory_bytes']),
    memoryTotalBytes: number(it['memory_total_bytes']),
  };
}

function spans(value: unknown): Span[] {
  return list(value).flatMap((it) => {
    const stage = STAGES.find((known) => known === it['stage']);
    const fromMs = number(it['from_ms']);
    return stage === undefined || fromMs === null ? [] : [{ stage, fromMs, toMs: number(it['to_ms']), speculation: number(it['speculation']) }];
  });
}
