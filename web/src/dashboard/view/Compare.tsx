// Two windows beside one another: the current one, and one before it or one that was kept.

import { useMemo } from 'preact/hooks';
import { type Baseline, type Comparison, compared, filterWords, turnsOf } from '../data/compare';
import type { Measure } from '../data/percentiles';
import type { Turn } from '../data/turn';
import { change, clock, duration, measureName } from '../data/words';

/** What the current window is compared with. */
export type Compared = 'nothing' | 'before' | 'kept';

interface ChoiceProps {
  compared: Compared;
  kept: Baseline | null;
  windowWords: string;
  onCompared: (compared: Compared) => void;
  onKeep: () => void;
}

export function CompareChoice({ compared: chosen, kept, windowWords, onCompared, onKeep }: ChoiceProps) {
  return (
    <div class="compare-choice">
      <label class="choice">
        <span class="choice-name">Compare with</span>
        <select id="compare" aria-label="Compare the window with" value={chosen} onChange={(event) => onCompared(event.currentTarget.value as Compared)}>
          <option value="nothing">Nothing</option>
          <option value="before">The {windowWords} before</option>
          {kept && <option value="kept">{baselineWords(kept)}</option>}
        </select>
      </label>
      <button type="button" class="pill" id="keep" title="Keep this window and its filter, to compare later ones with" onClick={onKeep}>
        Keep
      </button>
    </div>
  );
}

/** "09:40:00 to 09:55:00, stt openai". */
function baselineWords({ from, to, filter }: Baseline): string {
  const words = filterWords(filter);
  return `${clock(from)} to ${clock(to)}${words === '' ? '' : `, ${words}`}`;
}

interface Props {
  turns: readonly Turn[];
  baseline: Baseline;
  /** The turns of the current window. */
  current: readonly Turn[];
  measure: Measure;
  onMeasure: (measure: Measure) => void;
}

export function Compare({ turns, baseline, current, measure, onMeasure }: Props) {
  const before = turnsOf(turns, baseline);
  const rows = useMemo(() => compared(before, current), [before, current]);
  const [total] = rows;
  const isEmpty = total === undefined || total.before.n === 0 || total.now.n === 0;
  return (
    <section class="card area-compare" id="comparison" aria-label="Comparison">
      <div class="card-head">
        <h2>
          Now against <span class="baseline">{baselineWords(baseline)}</span>
        </h2>
        {total && (
          <p class="quiet">
            {total.now.n} spoken turns now, {total.before.n} then
          </p>
        )}
      </div>
      {isEmpty ? (
        <p class="quiet">One of the two windows has no spoken turn that was answered.</p>
      ) : (
        <table class="stage-table compare-table">
          <thead>
            <tr>
              <th scope="col">Stage</th>
              <th scope="col">p50</th>
              <th scope="col">p95</th>
              <th scope="col">Verdict</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <Row key={row.measure} row={row} isShown={row.measure === measure} onMeasure={onMeasure} />
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

function Row({ row: { measure, before, now, differs, isFaster }, isShown, onMeasure }: { row: Comparison; isShown: boolean; onMeasure: (measure: Measure) => void }) {
  return (
    <tr class={isShown ? 'is-shown' : ''} data-measure={measure}>
      <th scope="row">
        <button type="button" aria-pressed={isShown} onClick={() => onMeasure(measure)}>
          <i class={`dot fill-${measure}`} />
          {measureName(measure)}
        </button>
      </th>
      <Change before={before.p50} now={now.p50} isSure={differs === true} />
      <Change before={before.p95} now={now.p95} isSure={differs === true} />
      <td class="quiet" title="Mann-Whitney test of all turns of both windows, at 5 %">
        {differs === null ? 'too few turns' : differs ? (isFaster ? 'faster' : 'slower') : 'within chance'}
      </td>
    </tr>
  );
}

function Change({ before, now, isSure }: { before: number | null; now: number | null; isSure: boolean }) {
  const verdict = !isSure || before === now ? '' : (now ?? 0) < (before ?? 0) ? 'human' : 'late';
  return (
    <td>
      <span class="then">{before === null ? '–' : duration(before)}</span> <span aria-hidden="true">→</span> {now === null ? '–' : duration(now)}
      <b class={`change ${verdict}`}>{change(before, now)}</b>
    </td>
  );
}
