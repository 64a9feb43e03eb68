// The main figure in large type, and two more next to it.

import { HUMAN_MS, OBJECTIVE_MS, type Percentiles } from '../data/percentiles';
import { duration, percent } from '../data/words';
import { windowName } from './WindowChoice';

interface Props {
  percentiles: Percentiles;
  within: number | null;
  windowMs: number;
}

export function Headline({ percentiles: { n, p50, p95, p99 }, within, windowMs }: Props) {
  return (
    <section class="card area-headline" id="headline" aria-label="Voice to voice">
      <h2>Voice to voice</h2>
      {p50 === null ? (
        <p class="quiet">No spoken turn was answered in the last {windowName(windowMs)}.</p>
      ) : (
        <>
          <p class={`big ${verdict(p50)}`}>
            <Number ms={p50} />
          </p>
          <p class="quiet">half of the answers begin within this time</p>
          <dl class="pair">
            <div>
              <dt>p95</dt>
              <dd class={verdict(p95)}>{p95 === null ? '' : duration(p95)}</dd>
            </div>
            <div>
              <dt>p99</dt>
              <dd class={verdict(p99)}>{p99 === null ? '' : duration(p99)}</dd>
            </div>
            <div>
              <dt>within {duration(OBJECTIVE_MS).replace('.00', '')}</dt>
              <dd class={within === 1 ? 'good' : 'late'}>{within === null ? '' : percent(within)}</dd>
            </div>
          </dl>
          <p class="quiet">
            {n === 1 ? 'one spoken turn' : `${n} spoken turns`} answered in the last {windowName(windowMs)}
          </p>
        </>
      )}
    </section>
  );
}

function Number({ ms }: { ms: number }) {
  const [value, unit] = duration(ms).split(' ');
  return (
    <>
      {value}
      <span class="unit">{unit}</span>
    </>
  );
}

/** `human`: as fast as human conversation; `good`: within the objective; `late`: beyond it. */
export function verdict(ms: number | null): string {
  if (ms === null) return '';
  return ms <= HUMAN_MS * 1.5 ? 'human' : ms <= OBJECTIVE_MS ? 'good' : 'late';
}
