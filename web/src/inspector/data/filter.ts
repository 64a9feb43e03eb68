// Which events the inspector lists, and the tool calls among them. Pure functions.

import type { Direction, Entry } from './log';
import { fields } from './redact';

export const GROUPS = ['all', 'session', 'conversation', 'response', 'audio', 'tools', 'errors'] as const;
export type Group = (typeof GROUPS)[number];

export interface Filter {
  direction: Direction | 'all';
  group: Group;
  /** Events that carry audio, which are most of them. */
  showsAudio: boolean;
  /** Words, all of which an event must contain. */
  words: string;
}

export const firstFilter: Filter = { direction: 'all', group: 'all', showsAudio: false, words: '' };

export function matching(entries: readonly Entry[], { direction, group, showsAudio, words }: Filter): readonly Entry[] {
  const wanted = words.toLowerCase().split(/\s+/).filter((word) => word !== '');
  return entries.filter(
    (entry) =>
      (direction === 'all' || entry.direction === direction) &&
      (showsAudio || group === 'audio' || !carriesAudio(entry)) &&
      (group === 'all' || isOf(entry, group)) &&
      (wanted.length === 0 || containsAll(entry, wanted)),
  );
}

const carriesAudio = ({ type }: Entry) => type === 'binary frame' || type === 'input_audio_buffer.append' || type.endsWith('audio.delta');

function isOf(entry: Entry, group: Group): boolean {
  const { type } = entry;
  switch (group) {
    case 'all':
      return true;
    case 'session':
      return /^(?:transcription_|antiphon\.)?session\.|^rate_limits/.test(type);
    case 'conversation':
      return type.startsWith('conversation.');
    case 'response':
      return type.startsWith('response.');
    case 'audio':
      return type.includes('audio') || type === 'binary frame';
    case 'tools':
      return /function_call|mcp/.test(type) || /"type":"(?:function_call|function_call_output|mcp_\w+)"/.test(entry.json);
    case 'errors':
      return type === 'error' || type.endsWith('.failed') || type === 'not an event' || /"status":"failed"/.test(entry.json);
  }
}

function containsAll({ type, json }: Entry, words: readonly string[]): boolean {
  const all = `${type}\n${json}`.toLowerCase();
  return words.every((word) => all.includes(word));
}

export interface ToolCall {
  id: string;
  name: string;
  args: string;
  /** Null: there is none yet. */
  output: string | null;
  askedAt: number;
  answeredAt: number | null;
  /** The entry of the call. */
  n: number;
}

/** The calls of functions, in order, each with the result that the client sent. */
export function toolCalls(entries: readonly Entry[]): ToolCall[] {
  const calls = new Map<string, ToolCall>();
  for (const entry of entries) {
    if (!/function_call/.test(entry.json)) continue;
    const event = fields(JSON.parse(entry.json));
    const item = fields(event['item']);
    const text = (value: unknown) => (typeof value === 'string' ? value : '');
    if (item['type'] === 'function_call_output') {
      const call = calls.get(text(item['call_id']));
      if (call && call.output === null) Object.assign(call, { output: text(item['output']), answeredAt: entry.at });
      continue;
    }
    const isDone = entry.type === 'response.function_call_arguments.done';
    const asked = isDone ? event : item['type'] === 'function_call' && entry.type === 'response.output_item.done' ? item : null;
    if (asked === null) continue;
    const id = text(asked['call_id']);
    const known = calls.get(id);
    calls.set(id, {
      id,
      name: text(asked['name']) || (known?.name ?? ''),
      args: text(asked['arguments']) || (known?.args ?? ''),
      output: known?.output ?? null,
      askedAt: known?.askedAt ?? entry.at,
      answeredAt: known?.answeredAt ?? null,
      n: known?.n ?? entry.n,
    });
  }
  return [...calls.values()];
}
