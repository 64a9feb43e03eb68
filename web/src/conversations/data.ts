// A conversation as it is kept and exported: its lines with their times. Pure functions.

import type { Caption } from '@antiphon/client';

const VERSION = 1;
/** A longer conversation loses its oldest lines, in characters of JSON. */
export const MAX_CHARS = 256 * 1024;
/** Conversations in the browser; the oldest go. */
export const MAX_KEPT = 20;

/** Position of a line in the conversation's sound, in ms from its start. */
export interface Span {
  startMs: number;
  endMs: number;
}

export interface Line extends Span {
  role: 'user' | 'assistant';
  text: string;
  /** Characters that were heard; of the user's lines all. */
  heard: number;
  /** Of an answer that ended early. */
  end: 'cut' | 'lost' | 'failed' | null;
  typed: boolean;
  latencyMs: number | null;
}

export interface Kept {
  id: string;
  /** Milliseconds since 1970, as `changedAt`. */
  startedAt: number;
  changedAt: number;
  lines: Line[];
}

const NO_SPAN: Span = { startMs: 0, endMs: 0 };

export function linesOf(captions: readonly Caption[], spans: ReadonlyMap<string, Span>): Line[] {
  return captions.flatMap((caption): Line[] => {
    if (caption.text.trim() === '') return [];
    const { role, text } = caption;
    const span = spans.get(caption.id) ?? NO_SPAN;
    if (role === 'user') return [{ role, text, heard: text.length, end: null, typed: caption.typed, latencyMs: null, ...span }];
    const { status, revealed, latencyMs } = caption;
    // An answer that is still spoken is as one that the page's end cuts.
    const end = status === 'done' ? null : status === 'coming' ? 'lost' : status;
    return [{ role, text, heard: revealed, end, typed: false, latencyMs, ...span }];
  });
}

/** The captions of a kept conversation; their ids are those of an earlier session. */
export function captionsOf({ id, lines }: Kept): { captions: Caption[]; spans: Map<string, Span> } {
  const spans = new Map<string, Span>();
  const captions = lines.map((line, i): Caption => {
    const name = `past/${id}/${i}`;
    const { role, text, heard, end, typed, latencyMs, startMs, endMs } = line;
    spans.set(name, { startMs, endMs });
    if (role === 'user') return { role, id: name, text, draft: '', committed: true, final: true, typed, fault: null };
    return {
      role, id: name, responseId: '', text, textDone: true, sound: true, receivedMs: 0, playedMs: 0, audioDone: true, whole: true,
      revealed: heard, status: end ?? 'done', latencyMs, marks: null, hops: {},
    };
  });
  return { captions, spans };
}

/** As stored; the oldest lines are left out where it would be too long. */
export function textOf(kept: Kept): string {
  const lines = [...kept.lines];
  let json = '';
  do json = JSON.stringify({ version: VERSION, ...kept, lines });
  while (json.length > MAX_CHARS && lines.splice(0, Math.max(1, lines.length >> 3)).length > 0);
  return json;
}

/** Null if it is no conversation of this version. */
export function keptFrom(text: string | null): Kept | null {
  try {
    const { version, id, startedAt, changedAt, lines } = JSON.parse(text ?? 'null') as Record<string, unknown>;
    const isKept = version === VERSION && typeof id === 'string' && isCount(startedAt) && isCount(changedAt) && Array.isArray(lines);
    return isKept ? { id, startedAt, changedAt, lines: lines.filter(isLine) } : null;
  } catch {
    return null;
  }
}

const isCount = (value: unknown): value is number => typeof value === 'number' && value >= 0;

function isLine(value: unknown): value is Line {
  const { role, text, heard, end, typed, latencyMs, startMs, endMs } = (value ?? {}) as Record<string, unknown>;
  const isText = typeof text === 'string' && isCount(heard) && heard <= text.length && typeof typed === 'boolean';
  const isTimed = isCount(startMs) && isCount(endMs) && (latencyMs === null || isCount(latencyMs));
  return (role === 'user' || role === 'assistant') && isText && isTimed && [null, 'cut', 'lost', 'failed'].includes(end as null);
}

/** What a list shows of it: the user's first words. */
export function titleOf({ lines }: Kept): string {
  const text = (lines.find(({ role }) => role === 'user') ?? lines[0])?.text.trim() ?? '';
  return text.length > 60 ? `${text.slice(0, 59)}…` : text;
}

const WHO = { user: 'You', assistant: 'Antiphon' } as const;
const ENDED = { cut: ' [interrupted]', lost: ' [connection lost]', failed: ' [failed]' } as const;
const said = ({ text, heard, end }: Line) => (end === null ? text : `${text.slice(0, heard).trimEnd()}…${ENDED[end]}`);

export const plainOf = ({ lines }: Kept): string => lines.map((line) => `${WHO[line.role]}: ${said(line)}\n`).join('');

export function jsonOf({ startedAt, lines }: Kept): string {
  const all = lines.map(({ role, heard, text, end, ...rest }) => ({ who: WHO[role], text, heard: text.slice(0, heard), end, ...rest }));
  return `${JSON.stringify({ startedAt: new Date(startedAt).toISOString(), lines: all }, null, 2)}\n`;
}

/** A line without an end is shown for as long as reading it takes. */
const READING_MS_PER_CHAR = 60;
const LEAST_SHOWN_MS = 1_000;

/** Subtitles; times count from the start of the conversation's sound. */
export function srtOf({ lines }: Kept): string {
  return lines
    .map((line, i) => {
      const endMs = line.endMs > line.startMs ? line.endMs : line.startMs + Math.max(LEAST_SHOWN_MS, line.text.length * READING_MS_PER_CHAR);
      return `${i + 1}\n${stamp(line.startMs)} --> ${stamp(endMs)}\n${WHO[line.role]}: ${said(line).replaceAll(/\s*\n\s*/g, ' ')}\n`;
    })
    .join('\n');
}

function stamp(ms: number): string {
  const of = (value: number, digits: number) => String(Math.floor(value)).padStart(digits, '0');
  return `${of(ms / 3_600_000, 2)}:${of((ms / 60_000) % 60, 2)}:${of((ms / 1_000) % 60, 2)},${of(ms % 1_000, 3)}`;
}
