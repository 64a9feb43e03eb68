// A turn's stages on a time axis. The critical path is drawn full, work beside it thin, and
// speculative work hatched.

import { useState } from 'preact/hooks';
import type { Turn } from '../data/turn';
import { HUMAN_MS, OBJECTIVE_MS, lengthOf } from '../data/percentiles';
import { type Bar, type Lane, ticks, waterfall } from '../data/waterfall';
import { MARK_WORDS, STAGE_WORDS, duration } from '../data/words';

const N_TICKS = 5;

export function Waterfall({ turn }: { turn: Turn }) {
  const [whole, setWhole] = useState(false);
  const { fromMs, toMs, isCut, lanes, marks } = waterfall(turn, whole);
  const place = (ms: number) => `${((ms - fromMs) / (toMs - fromMs)) * 100}%`;
  const inside = (ms: number) => ms > fromMs && ms < toMs;
  if (lanes.length === 0) return <p class="quiet">Nothing of this turn has been timed.</p>;
  return (
    <div class="waterfall">
      <div class="lanes" role="img" aria-label={spoken(lanes)}>
        <div class="lines" aria-hidden="true">
          {ticks(fromMs, toMs, N_TICKS).map((ms) => (
            <i key={ms} class="tick" style={{ left: place(ms) }}>
              <span>{ms >= 1000 ? `${ms / 1000} s` : `${ms} ms`}</span>
            </i>
          ))}
          {marks.filter(({ ms }) => ms >= fromMs && ms <= toMs).map(({ mark, ms }) => (
            <i key={mark} class={`mark-line ${mark}`} style={{ left: place(ms) }} title={`${MARK_WORDS[mark]}: ${duration(ms)}`} />
          ))}
          {inside(HUMAN_MS) && <i class="limit human" style={{ left: place(HUMAN_MS) }} title="200 ms: human conversation" />}
          {inside(OBJECTIVE_MS) && <i class="limit objective" style={{ left: place(OBJECTIVE_MS) }} title="2 s: the objective" />}
        </div>
        {lanes.map((lane) => (
          <div class="lane" key={lane.stage}>
            <span class="lane-name" title={STAGE_WORDS[lane.stage].does}>
              {STAGE_WORDS[lane.stage].name}
            </span>
            <span class="track">
              {lane.bars.map((bar, i) => (
                <BarOf key={i} bar={bar} kind="beside" place={place} />
              ))}
              {lane.critical.map((bar, i) => (
                <BarOf key={`critical-${i}`} bar={bar} kind="critical" place={place} />
              ))}
            </span>
            <span class="lane-ms">{lane.critical.length > 0 ? duration(lane.critical.reduce((sum, bar) => sum + lengthOf(bar), 0)) : ''}</span>
          </div>
        ))}
      </div>
      <div class="key-line quiet">
        <span aria-hidden="true">
          <i class="swatch critical" /> on the critical path
        </span>
        <span aria-hidden="true">
          <i class="swatch beside" /> in parallel
        </span>
        <span aria-hidden="true">
          <i class="swatch hatched" /> speculative
        </span>
        {isCut && (
          <button type="button" class="link" onClick={() => setWhole(!whole)}>
            {whole ? 'show the wait only' : 'show all of the turn'}
          </button>
        )}
      </div>
    </div>
  );
}

function BarOf({ bar, kind, place }: { bar: Bar; kind: 'beside' | 'critical'; place: (ms: number) => string }) {
  const { stage, fromMs, toMs, speculation, open } = bar;
  const words = `${STAGE_WORDS[stage].name}, ${duration(fromMs)} to ${open ? 'now' : duration(toMs)}${speculation === null ? '' : `, of speculative response ${speculation + 1}`}`;
  const classes = `bar-of ${kind} fill-${stage} ${speculation === null ? '' : 'speculation'} ${open ? 'open' : ''}`;
  return <i class={classes} style={{ left: place(fromMs), right: `calc(100% - ${place(toMs)})` }} title={words} />;
}

function spoken(lanes: Lane[]): string {
  const words = lanes.flatMap(({ stage, critical }) => (critical.length === 0 ? [] : [`${STAGE_WORDS[stage].name} ${duration(critical.reduce((sum, bar) => sum + lengthOf(bar), 0))}`]));
  return words.length === 0 ? 'Waterfall of the turn' : `Waterfall. The answer waited for: ${words.join(', ')}`;
}

/** The critical path in one bar; `scaleMs` is the full width, the same for all turns of a list. */
export function Strip({ turn, scaleMs }: { turn: Turn; scaleMs: number }) {
  const width = (ms: number) => `${(ms / scaleMs) * 100}%`;
  return (
    <span class="strip" aria-hidden="true">
      {turn.parts.map((part, i) => (
        <i key={i} class={`fill-${part.stage} ${part.speculation === null ? '' : 'speculation'}`} style={{ left: width(part.fromMs), width: width(lengthOf(part)) }} />
      ))}
      {HUMAN_MS < scaleMs && <i class="limit human" style={{ left: width(HUMAN_MS) }} />}
      {OBJECTIVE_MS < scaleMs && <i class="limit objective" style={{ left: width(OBJECTIVE_MS) }} />}
    </span>
  );
}
