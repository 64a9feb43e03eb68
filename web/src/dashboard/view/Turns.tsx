// The current turn and all turns before it; each expands to its text and its latency breakdown.

import { useEffect, useState } from 'preact/hooks';
import type { Turn } from '../data/turn';
import { STATUS_WORDS, clock, duration } from '../data/words';
import { verdict } from './Headline';
import { TurnDetail } from './TurnDetail';
import { VirtualRows } from './VirtualRows';
import { Strip, Waterfall } from './Waterfall';

const LEAST_SCALE_MS = 1_000;

export function Turns({ turns, missingHubs }: { turns: readonly Turn[]; missingHubs: readonly string[] }) {
  const [opened, setOpened] = useState<string | null>(() => location.hash.slice(1) || null);
  const [linked, setLinked] = useState(opened);
  const placeOf = (id: string | null) => (id === null ? -1 : turns.findIndex((turn) => turn.id === id));
  const open = placeOf(opened);
  const scaleMs = turns.reduce((most, { voiceToVoiceMs }) => Math.max(most, voiceToVoiceMs ?? 0), LEAST_SCALE_MS);
  const toggle = (id: string) => {
    const next = opened === id ? null : id;
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
  const latest = turns[0];
  const hasHubs = turns.some(({ hub }) => hub !== latest?.hub);
  return (
    <section class="card area-turns" id="turns" aria-label="Turns">
      {latest && <Latest turn={latest} />}
      <h2>Turns</h2>
      {missingHubs.length > 0 && (
        <p class="missing" id="missing-hubs">
          No reply from {missingHubs.join(', ')}: turns there are missing.
        </p>
      )}
      <VirtualRows
        class="turn-list"
        items={turns}
        open={open}
        linked={placeOf(linked)}
        key={linked}
        row={(turn, i) => (
          <Row key={turn.id} turn={turn} place={[i + 1, turns.length]} scaleMs={scaleMs} isOpen={i === open} hasHubs={hasHubs} onToggle={() => toggle(turn.id)} />
        )}
      />
    </section>
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
        {turn.transcript ? <q>{turn.transcript}</q> : <span class="quiet">{placeholder(turn)}</span>}
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
}

function Row({ turn, place, scaleMs, isOpen, hasHubs, onToggle }: RowProps) {
  const ms = turn.voiceToVoiceMs;
  return (
    <li class={`turn ${turn.status}`} data-turn={turn.id} aria-posinset={place[0]} aria-setsize={place[1]}>
      <button type="button" class="turn-row" aria-expanded={isOpen} aria-controls={isOpen ? `detail-${turn.id}` : undefined} onClick={onToggle}>
        <time class="turn-at" dateTime={new Date(turn.startedAt).toISOString()}>
          {clock(turn.startedAt)}
        </time>
        <span class="turn-words">{turn.transcript ?? <span class="quiet">{placeholder(turn)}</span>}</span>
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
      {isOpen && <TurnDetail turn={turn} />}
    </li>
  );
}

const WITHOUT_WORDS: Record<string, string> = { tool: 'the result of a tool', idle: 'nobody spoke, so the hub did' };

function placeholder(turn: Turn): string {
  if (turn.status === 'listening') return 'listening …';
  return WITHOUT_WORDS[turn.kind] ?? 'no transcript';
}
