// Which turns the dashboard shows, and in which order: filters, search and sorting. Pure functions; the choice is
// kept in the page's address, so that it can be shared.

import { MEASURES, OBJECTIVE_MS, valueOf } from './percentiles';
import type { Turn } from './turn';

export const SHOWS = ['all', 'failed', 'slow', 'interrupted', 'unanswered'] as const;
/** `slow`: beyond the objective. */
export type Show = (typeof SHOWS)[number];

export interface Filter {
  /** Words or identifiers, all of which a turn must contain; empty: any. */
  words: string;
  show: Show;
  /** Of the following, empty: any. */
  kind: string;
  session: string;
  /** Stage and name, as in `stt openai`. */
  engine: string;
}

/** By time, or by a measure with the slowest first. */
export const ORDERS = ['newest', 'oldest', ...MEASURES] as const;
export type Order = (typeof ORDERS)[number];

export interface Query {
  filter: Filter;
  order: Order;
}

export const everything: Filter = { words: '', show: 'all', kind: '', session: '', engine: '' };
export const firstQuery: Query = { filter: everything, order: 'newest' };

export const isFiltered = (filter: Filter) => FIELDS.some((field) => filter[field] !== everything[field]);

const FIELDS = ['words', 'show', 'kind', 'session', 'engine'] as const;

/** Reads the part behind `?` of an address; unknown values count as none. */
export function queryFrom(search: string): Query {
  const asked = new URLSearchParams(search);
  const text = (name: string) => asked.get(name)?.trim() ?? '';
  return {
    filter: {
      words: text('words'),
      show: SHOWS.find((show) => show === text('show')) ?? 'all',
      kind: text('kind'),
      session: text('session'),
      engine: text('engine'),
    },
    order: ORDERS.find((order) => order === text('order')) ?? 'newest',
  };
}

/** The reverse: `?show=failed&order=llm`, or nothing where all turns are shown with the newest first. */
export function searchOf({ filter, order }: Query): string {
  const chosen = new URLSearchParams(FIELDS.flatMap((field) => (filter[field] === everything[field] ? [] : [[field, filter[field]]])));
  if (order !== firstQuery.order) chosen.set('order', order);
  const text = chosen.toString();
  return text === '' ? '' : `?${text}`;
}

export function matching(turns: readonly Turn[], filter: Filter): readonly Turn[] {
  if (!isFiltered(filter)) return turns;
  const words = filter.words.toLowerCase().split(/\s+/).filter((word) => word !== '');
  return turns.filter(
    (turn) =>
      isShown(turn, filter.show) &&
      (filter.kind === '' || turn.kind === filter.kind) &&
      (filter.session === '' || turn.sessionId === filter.session) &&
      (filter.engine === '' || enginesOf(turn).includes(filter.engine)) &&
      (words.length === 0 || containsAll(turn, words)),
  );
}

function isShown(turn: Turn, show: Show): boolean {
  switch (show) {
    case 'all':
      return true;
    case 'failed':
      return turn.status === 'failed' || turn.error !== null;
    case 'slow':
      return (turn.voiceToVoiceMs ?? 0) > OBJECTIVE_MS;
    case 'interrupted':
      return turn.bargedIn;
    case 'unanswered':
      return turn.status === 'unanswered';
  }
}

function containsAll(turn: Turn, words: readonly string[]): boolean {
  const all = [turn.transcript, turn.reply, turn.error, turn.id, turn.sessionId, turn.responseId, turn.hub, turn.transport].join('\n').toLowerCase();
  return words.every((word) => all.includes(word));
}

/** The engines and workers of a turn, each with its stage. */
export function enginesOf(turn: Turn): string[] {
  const named = [...Object.entries(turn.engines), ...Object.entries(turn.workers).map(([stage, worker]) => [`${stage} worker`, worker] as const)];
  return named.map(([stage, name]) => `${stage} ${name}`);
}

/** Turns without a value of the measure come last. `turns` are the newest first, which decides between equals. */
export function ordered(turns: readonly Turn[], order: Order): readonly Turn[] {
  if (order === 'newest') return turns;
  if (order === 'oldest') return [...turns].reverse();
  // A typed turn has a latency, too, and is listed with it.
  const slowness = (turn: Turn) => (order === 'voice_to_voice' ? turn.voiceToVoiceMs : valueOf(turn, order)) ?? -1;
  const keyed = turns.map((turn) => [slowness(turn), turn] as const);
  return keyed.sort(([a], [b]) => b - a).map(([, turn]) => turn);
}

export interface Choices {
  /** With the number of turns of each; the latest session first. */
  sessions: [string, number][];
  engines: [string, number][];
  kinds: [string, number][];
}

/** Sessions offered for a choice; turns of others are found by search. */
const MAX_SESSIONS = 100;

/** What can be chosen among. */
export function choices(turns: readonly Turn[]): Choices {
  const engines = counted(turns.flatMap(enginesOf));
  // One engine that served every turn is no choice.
  const isChoice = ([, n]: [string, number]) => engines.length > 0 && n < turns.length;
  return {
    sessions: counted(turns.flatMap(({ sessionId }) => (sessionId === '' ? [] : [sessionId]))).slice(0, MAX_SESSIONS),
    engines: engines.filter(isChoice).sort(([a], [b]) => a.localeCompare(b)),
    kinds: counted(turns.map(({ kind }) => kind)),
  };
}

function counted(names: readonly string[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts];
}

/** The place of the turn that an address names by its own id or by that of its answer; -1: it is not among them. */
export function placeOf(turns: readonly Turn[], name: string | null): number {
  return name === null ? -1 : turns.findIndex(({ id, responseId }) => id === name || responseId === name);
}

