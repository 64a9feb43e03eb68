// Counters: sessions, turns, barge-ins, errors, speculative responses and the time wasted on them.

import type { Summary } from '../data/percentiles';
import type { HubState } from '../data/turn';
import { duration, percent } from '../data/words';
import { windowName } from './WindowChoice';

interface Props {
  summary: Summary;
  state: HubState | null;
  windowMs: number;
  /** The summary is of some of the turns; totals of the hub are omitted. */
  isFiltered: boolean;
}

export function Tally({ summary, state, windowMs, isFiltered }: Props) {
  const total = (name: string) => (isFiltered ? null : (state?.counters[name] ?? null));
  const responses = total('responses') ?? 0;
  const errors = total('errors');
  const wastedS = total('speculation_wasted_seconds');
  const speculative = total('speculative_responses');
  return (
    <section class="area-tally tally" aria-label="Counts">
      <Tile id="sessions" name="Sessions now" value={state ? String(state.sessions) : '–'} note={state ? `${count(state.connections, 'connection')}` : ''} />
      <Tile id="turns-count" name="Turns" value={String(summary.turns)} note={spoken(total('turns'))} />
      <Tile id="barge-ins" name="Barge-ins" value={String(summary.bargeIns)} note={since(total('barge_ins'))} />
      <Tile
        id="errors"
        name="Errors"
        value={errors === null ? String(summary.failed) : String(errors)}
        note={errors === null ? 'failed turns' : errorNote(errors, responses)}
        bad={(errors ?? summary.failed) > 0}
      />
      <Tile id="speculation" name="Speculation confirmed" value={summary.speculations > 0 ? percent(summary.confirmed / summary.speculations) : '–'} note={speculative === null ? '' : `${speculative} since the start`} />
      <Tile id="wasted" name="Speculation wasted" value={duration(summary.wastedMs)} note={wastedS === null ? '' : `${duration(wastedS * 1000)} since the start`} />
      <p class="tally-note quiet">
        {isFiltered
          ? `Of the turns that match the filter, in the last ${windowName(windowMs)}.`
          : `Turns, barge-ins and speculation of the last ${windowName(windowMs)}; errors since the start of the hub.`}
      </p>
    </section>
  );
}

/** Not every error ends a response: invalid client requests are errors too. */
function errorNote(errors: number, responses: number): string {
  if (responses === 0) return 'since the start';
  const share = errors <= responses ? `${percent(errors / responses)} of ` : 'in ';
  return share + count(responses, 'response');
}

/** The hub counts turns by their speech; typed ones are in the list alone. */
const spoken = (total: number | null) => (total === null ? '' : `${total} spoken since the start`);
const since = (total: number | null) => (total === null ? '' : `${total} since the start`);
const count = (n: number, what: string) => `${n} ${what}${n === 1 ? '' : 's'}`;

function Tile({ id, name, value, note, bad = false }: { id: string; name: string; value: string; note: string; bad?: boolean }) {
  return (
    <div class={`tile ${bad ? 'bad' : ''}`} id={id}>
      <span class="tile-name">{name}</span>
      <b class="tile-value">{value}</b>
      <span class="tile-note">{note}</span>
    </div>
  );
}
