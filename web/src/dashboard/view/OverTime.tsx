// Percentiles over time with two reference lines: 2 s, the objective, and 200 ms, the gap in human
// conversation. The scale is logarithmic, so that values near both lines can be distinguished.

import { useMemo, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { HUMAN_MS, MEASURES, type Measure, OBJECTIVE_MS, type Sample, sliding } from '../data/percentiles';
import { clock, duration, measureName } from '../data/words';
import { type Ink, Plot, times } from './Plot';

/** Number of windows shown, so that changes of the percentiles are visible. */
const N_WINDOWS = 3;
const N_POINTS = 160;
const STEPS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000];

const LINES = [
  { key: 'p50', name: 'p50', ink: 'p50', width: 2.5 },
  { key: 'p95', name: 'p95', ink: 'p95', width: 2 },
  { key: 'p99', name: 'p99', ink: 'p99', width: 2 },
] as const;

interface Props {
  samples: readonly Sample[];
  measure: Measure;
  now: number;
  windowMs: number;
  onMeasure: (measure: Measure) => void;
}

export function OverTime({ samples, measure, now, windowMs, onMeasure }: Props) {
  const [cursor, setCursor] = useState<number | null>(null);
  const span = useRef<[number, number]>([0, 1]);
  const from = Math.max(now - N_WINDOWS * windowMs, Math.min(now - 60_000, (samples[0]?.at ?? now) - 5_000));
  span.current = [from / 1000, now / 1000];
  const data = useMemo(() => dataOf(samples, from, now, windowMs), [samples, from, now, windowMs]);
  const options = useMemo(() => optionsOf(span, setCursor), []);
  const shown = readout(data, cursor);
  return (
    <section class="card area-chart" id="over-time" aria-label="Percentiles over time">
      <div class="card-head">
        <h2>
          <select class="quiet-select" aria-label="What the chart shows" value={measure} onChange={(event) => onMeasure(event.currentTarget.value as Measure)}>
            {MEASURES.map((of) => (
              <option key={of} value={of}>
                {measureName(of)}
              </option>
            ))}
          </select>
          <span class="quiet">over time</span>
        </h2>
        <dl class="legend">
          {LINES.map(({ key, name }) => (
            <div key={key}>
              <dt>
                <i class={`stroke line-${key}`} />
                {name}
              </dt>
              <dd>{shown[key] === null ? '–' : duration(shown[key])}</dd>
            </div>
          ))}
          <div>
            <dt>
              <i class="point" />
              {shown.at === null ? 'turn' : clock(shown.at)}
            </dt>
            <dd>{shown.turn === null ? '' : duration(shown.turn)}</dd>
          </div>
        </dl>
      </div>
      <Plot data={data} options={options} label={`${measureName(measure)} over time: ${LINES.map(({ key, name }) => `${name} ${shown[key] === null ? 'none' : duration(shown[key])}`).join(', ')}`} />
    </section>
  );
}

function dataOf(samples: readonly Sample[], from: number, now: number, windowMs: number): uPlot.AlignedData {
  // A logarithmic scale has no zero.
  const shown = (ms: number | null) => (ms === null ? null : Math.max(1, ms));
  const lines = sliding(samples, from, now, windowMs, N_POINTS);
  const turns = samples.filter(({ at }) => at >= from && at <= now);
  return uPlot.join([
    [lines.at.map((at) => at / 1000), lines.p50.map(shown), lines.p95.map(shown), lines.p99.map(shown)],
    [turns.map(({ at }) => at / 1000), turns.map(({ ms }) => shown(ms))],
  ]);
}

/** Values at the cursor, or the latest ones. */
function readout(data: uPlot.AlignedData, cursor: number | null) {
  const at = (series: number) => {
    const column = data[series] ?? [];
    // Turns and percentile points have different times: the last value up to the cursor is shown.
    for (let i = cursor ?? column.length - 1; i >= 0; i -= 1) {
      const value = column[i];
      if (value !== undefined) return value;
    }
    return null;
  };
  const moment = cursor === null ? null : (data[0][cursor] ?? null);
  return { p50: at(1), p95: at(2), p99: at(3), turn: cursor === null ? null : (data[4]?.[cursor] ?? null), at: moment === null ? null : moment * 1000 };
}

function optionsOf(span: { current: [number, number] }, onCursor: (index: number | null) => void) {
  return (ink: Ink): Omit<uPlot.Options, 'width' | 'height'> => ({
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: {
      x: { time: true, range: () => span.current },
      y: { distr: 3, log: 10, range: (_, min, max) => [Math.min(80, (min ?? 80) * 0.7), Math.max(3_000, (max ?? 0) * 1.3)] },
    },
    axes: [
      { stroke: ink('ink-faint'), grid: { stroke: ink('grid'), width: 1 }, ticks: { show: false }, font: '12px system-ui', size: 30, space: 70, values: times },
      {
        stroke: ink('ink-faint'),
        grid: { stroke: ink('grid'), width: 1 },
        ticks: { show: false },
        font: '12px system-ui',
        size: 58,
        splits: (plot) => STEPS_MS.filter((ms) => ms >= (plot.scales['y']?.min ?? 0) && ms <= (plot.scales['y']?.max ?? 0)),
        filter: (_, splits) => splits,
        values: (_, splits) => splits.map((ms) => (ms >= 1000 ? `${ms / 1000} s` : `${ms} ms`)),
      },
    ],
    series: [
      {},
      ...LINES.map(({ name, ink: colour, width }) => ({ label: name, stroke: ink(colour), width, points: { show: false } })),
      { label: 'turn', paths: () => null, points: { show: true, size: 5, fill: ink('point'), stroke: ink('point'), width: 0 } },
    ],
    hooks: {
      drawAxes: [(plot) => limits(plot, ink)],
      setCursor: [(plot) => onCursor(plot.cursor.idx ?? null)],
    },
  });
}

/** The two reference lines with their names. */
function limits(plot: uPlot, ink: Ink): void {
  const { ctx, bbox } = plot;
  const ratio = window.devicePixelRatio;
  // Each name is on the outer side of its line, where the fewest turns are.
  const draw = (ms: number, colour: string, name: string, baseline: 'bottom' | 'top') => {
    const y = plot.valToPos(ms, 'y', true);
    if (y < bbox.top || y > bbox.top + bbox.height) return;
    ctx.strokeStyle = colour;
    ctx.fillStyle = colour;
    ctx.setLineDash([6 * ratio, 5 * ratio]);
    ctx.lineWidth = 1.5 * ratio;
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.font = `${12 * ratio}px system-ui`;
    ctx.textAlign = 'left';
    ctx.textBaseline = baseline;
    ctx.fillText(name, bbox.left + 6 * ratio, y + (baseline === 'top' ? 5 : -4) * ratio);
  };
  ctx.save();
  draw(OBJECTIVE_MS, ink('warn'), 'objective: 2 s', 'bottom');
  draw(HUMAN_MS, ink('you'), 'human conversation: 200 ms', 'top');
  ctx.restore();
}
