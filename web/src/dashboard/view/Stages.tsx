// Latency breakdown: each stage's percentiles and share of the total, and the choice of what the chart shows.

import { useMemo } from 'preact/hooks';
import { MEASURES, type Measure, type Percentiles, percentiles, recent, samples, shares, within } from '../data/percentiles';
import { STAGES, type Turn } from '../data/turn';
import { STAGE_WORDS, duration, measureName, percent } from '../data/words';

interface Props {
  turns: readonly Turn[];
  now: number;
  windowMs: number;
  measure: Measure;
  onMeasure: (measure: Measure) => void;
}

export function Stages({ turns, now, windowMs, measure, onMeasure }: Props) {
  const all = useMemo(() => MEASURES.map((of) => ({ of, samples: samples(turns, of) })), [turns]);
  const inWindow = all.map(({ of, samples: own }) => ({ of, ms: recent(own, now, windowMs) }));
  // A stage that contributed to no turn is omitted.
  const rows = inWindow.filter(({ of, ms }) => of === 'voice_to_voice' || ms.some((one) => one > 0)).map(({ of, ms }) => ({ of, own: percentiles(ms) }));
  const share = shares(within(turns, now, windowMs));
  const widest = Math.max(1, ...rows.filter(({ of }) => of !== 'voice_to_voice').map(({ own }) => own.p95 ?? 0));
  return (
    <section class="card area-stages" id="stages" aria-label="Stages">
      <h2>Where the time goes</h2>
      <ShareBar share={share} />
      <table class="stage-table">
        <thead>
          <tr>
            <th scope="col">Stage</th>
            <th scope="col" title="turns, typed ones included where they have the stage">
              turns
            </th>
            <th scope="col">p50</th>
            <th scope="col">p95</th>
            <th scope="col">p99</th>
            <th scope="col" title="of all the time that answers were waited for">
              share
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ of, own }) => (
            <Row key={of} of={of} own={own} share={of === 'voice_to_voice' ? null : (share[of] ?? 0)} widest={widest} isShown={of === measure} onMeasure={onMeasure} />
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** The stages of the total in one bar; the table says the same in figures. */
function ShareBar({ share }: { share: ReturnType<typeof shares> }) {
  return (
    <div class="share-bar" aria-hidden="true">
      {STAGES.map((stage) => (
        <i key={stage} class={`fill-${stage}`} style={{ width: `${(share[stage] ?? 0) * 100}%` }} title={STAGE_WORDS[stage].name} />
      ))}
    </div>
  );
}

interface RowProps {
  of: Measure;
  own: Percentiles;
  /** Of the total, 0 to 1; null for the total itself. */
  share: number | null;
  widest: number;
  isShown: boolean;
  onMeasure: (measure: Measure) => void;
}

function Row({ of, own, share, widest, isShown, onMeasure }: RowProps) {
  const cell = (ms: number | null) => <td>{ms === null ? '–' : duration(ms)}</td>;
  return (
    <tr class={isShown ? 'is-shown' : ''}>
      <th scope="row">
        <button type="button" aria-pressed={isShown} title={of === 'voice_to_voice' ? 'the total latency' : STAGE_WORDS[of].does} onClick={() => onMeasure(of)}>
          <i class={`dot fill-${of}`} />
          {measureName(of)}
        </button>
        {of !== 'voice_to_voice' && (
          <span class="range" aria-hidden="true">
            <i class={`fill-${of}`} style={{ width: `${((own.p50 ?? 0) / widest) * 100}%` }} />
            <i class={`fill-${of} faint`} style={{ width: `${(Math.max(0, (own.p95 ?? 0) - (own.p50 ?? 0)) / widest) * 100}%` }} />
          </span>
        )}
      </th>
      <td class="quiet">{own.n}</td>
      {cell(own.p50)}
      {cell(own.p95)}
      {cell(own.p99)}
      <td class="quiet">{share === null ? '' : percent(share)}</td>
    </tr>
  );
}
