// The dashboard's data: the turns, the hub's states of the last hour, and the status of the feed.
// A pure reducer; nothing is kept when the page is closed.

import type { Cluster } from './cluster';
import type { HubState, Turn } from './turn';

/** Maximum number of turns kept, unless the hub reports a different capacity. */
const CAPACITY = 1_000;
/** One hour of states, which arrive once a second. */
export const MAX_STATES = 3_600;

export type Line =
  | { kind: 'connecting' }
  | { kind: 'live' }
  /** Disconnected since `since`; the next attempt is at `retryAt` (both ms since 1970). */
  | { kind: 'gone'; since: number; retryAt: number; attempt: number }
  | { kind: 'key'; refused: boolean }
  /** The hub responds, but does not provide turns (an older version, or not a hub). */
  | { kind: 'unfit'; status: number };

export interface Book {
  line: Line;
  /** Newest first, without duplicates. */
  turns: Turn[];
  capacity: number;
  /** Oldest first. */
  states: HubState[];
  /** Null: the hub is in no cluster, or does not say. */
  cluster: Cluster | null;
  /** Hubs of the cluster that did not reply when the list was read. */
  missingHubs: string[];
}

export const emptyBook: Book = { line: { kind: 'connecting' }, turns: [], capacity: CAPACITY, states: [], cluster: null, missingHubs: [] };

export type Entry =
  | { kind: 'line'; line: Line }
  | { kind: 'list'; turns: Turn[]; capacity: number | null; missingHubs?: string[] }
  | { kind: 'turn'; turn: Turn }
  | { kind: 'state'; state: HubState; cluster?: Cluster | null };

export function enter(book: Book, entry: Entry): Book {
  switch (entry.kind) {
    case 'line':
      return { ...book, line: entry.line };
    case 'list': {
      // The list is the hub's current one: turns that it discarded, or of a previous hub, are removed. Those of hubs that
      // did not reply are kept.
      const capacity = entry.capacity ?? book.capacity;
      const missingHubs = entry.missingHubs ?? [];
      const listed = new Set(entry.turns.map(({ id }) => id));
      const kept = book.turns.filter(({ hub, id }) => hub !== null && missingHubs.includes(hub) && !listed.has(id));
      return { ...book, capacity, missingHubs, turns: sorted([...entry.turns, ...kept]).slice(0, capacity) };
    }
    case 'turn': {
      const others = book.turns.filter(({ id }) => id !== entry.turn.id);
      return { ...book, turns: sorted([entry.turn, ...others]).slice(0, book.capacity) };
    }
    case 'state':
      // If the clock was set back, later states are removed, because the charts would fold over.
      return { ...book, cluster: entry.cluster ?? null, states: [...book.states.filter(({ at }) => at < entry.state.at), entry.state].slice(-MAX_STATES) };
  }
}

function sorted(turns: Turn[]): Turn[] {
  return [...turns].sort((a, b) => b.startedAt - a.startedAt || b.number - a.number);
}
