// All the dashboard knows: the turns, the hub's states of the last hour, and how the line to it is.
// A pure reducer; nothing of it is kept when the page is left.

import type { HubState, Turn } from './turn';

/** Turns are kept up to the hub's own capacity unless it says another. */
const CAPACITY = 1_000;
/** States come once a second: an hour of them. */
export const MAX_STATES = 3_600;

export type Line =
  | { kind: 'connecting' }
  | { kind: 'live' }
  /** Away since `since`; the next attempt is at `retryAt` (both ms since 1970). */
  | { kind: 'gone'; since: number; retryAt: number; attempt: number }
  | { kind: 'key'; refused: boolean }
  /** The hub answers, but has no such records (an older one, or it is no hub). */
  | { kind: 'unfit'; status: number };

export interface Book {
  line: Line;
  /** Newest first, each once. */
  turns: Turn[];
  capacity: number;
  /** Oldest first. */
  states: HubState[];
}

export const emptyBook: Book = { line: { kind: 'connecting' }, turns: [], capacity: CAPACITY, states: [] };

export type Entry =
  | { kind: 'line'; line: Line }
  | { kind: 'list'; turns: Turn[]; capacity: number | null }
  | { kind: 'turn'; turn: Turn }
  | { kind: 'state'; state: HubState };

export function enter(book: Book, entry: Entry): Book {
  switch (entry.kind) {
    case 'line':
      return { ...book, line: entry.line };
    case 'list': {
      // The list is what the hub has now: what it forgot, or a hub before it knew, goes.
      const capacity = entry.capacity ?? book.capacity;
      return { ...book, capacity, turns: sorted(entry.turns).slice(0, capacity) };
    }
    case 'turn': {
      const others = book.turns.filter(({ id }) => id !== entry.turn.id);
      return { ...book, turns: sorted([entry.turn, ...others]).slice(0, book.capacity) };
    }
    case 'state':
      // A clock that was put back would fold the charts over: what seems to lie ahead goes.
      return { ...book, states: [...book.states.filter(({ at }) => at < entry.state.at), entry.state].slice(-MAX_STATES) };
  }
}

function sorted(turns: Turn[]): Turn[] {
  return [...turns].sort((a, b) => b.startedAt - a.startedAt || b.number - a.number);
}
