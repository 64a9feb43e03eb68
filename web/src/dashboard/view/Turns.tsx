// The current turn and all turns before it; each expands to its text and its latency breakdown.

import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { Book } from '../data/book';
import { csvOf, jsonOf } from '../data/export';
import { ORDERS, type Order, type Query, everything, placeOf } from '../data/query';
import type { Turn } from '../data/turn';
import { STATUS_WORDS, clock, duration, orderName } from '../data/words';
import { verdict } from './Headline';
import { TurnDetail } from './TurnDetail';
import { VirtualRows } from './VirtualRows';
import { Strip, Waterfall } from './Waterfall';

const LEAST_SCALE_MS = 1_000;

interface Props {
  book: Book;
  /** Those that match, in their order. */
  turns: readonly Turn[];
  query: Query;
  onQuery: (query: Query) => void;
  /** Requests a path of the hub. */
  ask: (path: string) => Promise<Response>;
}

export function Turns({ book, turns, query, onQuery, ask }: Props) {
  const [opened, setOpened] = useState<string | null>(() => location.hash.slice(1) || null);
  const [linked, setLinked] = useState(opened);
  const open = placeOf(turns, opened);
  const scaleMs = turns.reduce((most, { voiceToVoiceMs }) => Math.max(most, voiceToVoiceMs ?? 0), LEAST_SCALE_MS);
  const toggle = (id: string) => {
    const next = turns[open]?.id === id ? null : id;
    setOpened(next);
    history.replaceState(null, '', next === null ? location.pathname + location.search : `#${next}`);
  };
  useEffect(() => {
    const follow = () => {
      setOpened(location.hash.slice(1) || null);
      setLinked(location.hash.slice(1) || null);
    };
    window.addEventListener('hashchange', follow);
    return () => window.removeEventListener('hashchange', follow);
  }, []);
  const latest = turns.reduce<Turn | undefined>((last, turn) => (last === undefined || turn.startedAt > last.startedAt ? turn : last), undefined);
  const hasHubs = book.turns.some(({ hub }) => hub !== book.turns[0]?.hub);
  const isHidden = open < 0 && placeOf(book.turns, opened) >= 0;
  const showAll = () => onQuery({ ...query, filter: everything });
  const ownHub = book.cluster?.hubs.find(({ isThis }) => isThis)?.name ?? null;
  return (
    <section class="card area-turns" id="turns" aria-label="Turns">
      {latest && <Latest turn={latest} />}
      <div class="card-head turns-head">
        <h2>Turns</h2>
        <div class="turns-tools">
          <label class="choice">
            <span class="choice-name">Order</span>
            <select id="order" value={query.order} onChange={(event) => onQuery({ ...query, order: event.currentTarget.value as Order })}>
              {ORDERS.map((order) => (
                <option key={order} value={order}>
                  {orderName(order)}
                </option>
              ))}
            </select>
          </label>
          <span class="export">
            <span class="quiet" id="export-name">
              Export
            </span>
            <Download name="csv" media="text/csv" make={() => csvOf(turns)} />
            <Download name="json" media="application/json" make={() => jsonOf(turns)} />
          </span>
        </div>
      </div>
      {book.missingHubs.length > 0 && (
        <p class="missing" id="missing-hubs">
          No reply from {book.missingHubs.join(', ')}: turns there are missing.
        </p>
      )}
      {isHidden && (
        <p class="missing" id="hidden-turn">
          The filter hides the turn of this address.{' '}
          <button type="button" class="link" onClick={showAll}>
            show all turns
          </button>
        </p>
      )}
      {turns.length === 0 && <p class="quiet">No turn matches the filter.</p>}
      <VirtualRows
        class="turn-list"
        items={turns}
        open={open}
        linked={placeOf(turns, linked)}
        key={linked}
        row={(turn, i) => (
          <Row key={turn.id} turn={turn} place={[i + 1, turns.length]} scaleMs={scaleMs} isOpen={i === open} hasHubs={hasHubs} onToggle={() => toggle(turn.id)}>
            <TurnDetail
              turn={turn}
              isOfThisHub={turn.hub === null || turn.hub === ownHub}
              ask={ask}
              onSession={() => onQuery({ ...query, filter: { ...everything, session: turn.sessionId } })}
            />
          </Row>
        )}
      />
    </section>
  );
}

/** Saves the turns that are listed, as they are now. */
function Download({ name, media, make }: { name: string; media: string; make: () => string }) {
  const save = () => {
    const address = URL.createObjectURL(new Blob([make()], { type: media }));
    const link = document.createElement('a');
    link.href = address;
    link.download = `antiphon-turns.${name}`;
    link.click();
    URL.revokeObjectURL(address);
  };
  return (
    <button type="button" class="pill" id={`export-${name}`} aria-describedby="export-name" onClick={save}>
      {name.toUpperCase()}
    </button>
  );
}

function Latest({ turn }: { turn: Turn }) {
  const isLive = turn.status === 'listening' || turn.status === 'answering';
  return (
    <div class={`latest ${isLive ? 'is-live' : ''}`} id="latest">
      <h2>
        {isLive ? 'Current turn' : 'Latest turn'} <span class="quiet">{clock(turn.startedAt)}</span>
      </h2>
      <p class="latest-words">
        {turn.transcript ? <q dir="auto">{turn.transcript}</q> : <span class="quiet">{placeholder(turn)}</span>}
        {turn.voiceToVoiceMs !== null && <b class={`latest-ms ${verdict(turn.voiceToVoiceMs)}`}>{duration(turn.voiceToVoiceMs)}</b>}
      </p>
      <Waterfall turn={turn} />
    </div>
  );
}

interface RowProps {
  turn: Turn;
  /** Position from 1, and total number. */
  place: [number, number];
  scaleMs: number;
  isOpen: boolean;
  /** The turns shown are of more than one hub. */
  hasHubs: boolean;
  onToggle: () => void;
  /** What it shows when it is open. */
  children: ComponentChildren;
}

function Row({ turn, place, scaleMs, isOpen, hasHubs, onToggle, children }: RowProps) {
  const ms = turn.voiceToVoiceMs;
  return (
    <li class={`turn ${turn.status}`} data-turn={turn.id} aria-posinset={place[0]} aria-setsize={place[1]}>
      <button type="button" class="turn-row" aria-expanded={isOpen} aria-controls={isOpen ? `detail-${turn.id}` : undefined} onClick={onToggle}>
        <time class="turn-at" dateTime={new Date(turn.startedAt).toISOString()}>
          {clock(turn.startedAt)}
        </time>
        <span class="turn-words" dir="auto">{turn.transcript ?? <span class="quiet">{placeholder(turn)}</span>}</span>
        <span class="badges">
          {hasHubs && turn.hub !== null && (
            <span class="badge turn-hub" title="the hub of this turn">
              {turn.hub}
            </span>
          )}
          {turn.kind !== 'speech' && <span class="badge">{turn.kind}</span>}
          {turn.bargedIn && <span class="badge hub">barge-in</span>}
          {turn.wastedMs > 0 && <span class="badge">speculation dropped</span>}
          {turn.status !== 'completed' && !turn.bargedIn && <span class={`badge ${turn.status === 'failed' ? 'bad' : ''}`}>{STATUS_WORDS[turn.status]}</span>}
        </span>
        <Strip turn={turn} scaleMs={scaleMs} />
        <span class={`turn-ms ${verdict(ms)}`}>{ms === null ? '–' : duration(ms)}</span>
      </button>
      {isOpen && children}
    </li>
  );
}

const WITHOUT_WORDS: Record<string, string> = { tool: 'the result of a tool', idle: 'nobody spoke, so the hub did' };

function placeholder(turn: Turn): string {
  if (turn.status === 'listening') return 'listening …';
  return WITHOUT_WORDS[turn.kind] ?? 'no transcript';
}
