// The latency of the conversation's turns on a common axis, for screens with room: a band of each stage runs from turn to turn,
// the newest below, and the current one grows while the user waits. Loaded by `App` where the screen is large; `Latency.tsx` has
// the figures of one turn.

import { type Conversation, type State, phaseOf } from '@antiphon/client';
import { useEffect, useMemo, useState } from 'preact/hooks';
import '../style/ribbon.css';
import { LABELS, type Segment } from '../state/latency';
import { LiveTurn, type Turn, axisMs, median, turnsOf } from '../state/ribbon';

interface Props {
  conversation: Conversation;
  state: State;
}

const MAX_TURNS = 10;
/** Units of the drawing: its width, and of a turn the height of the bar and of the bands to the next one. */
const [WIDTH, BAR, FLOW] = [1000, 10, 14];
const reduced = matchMedia('(prefers-reduced-motion: reduce)');

const ms = (value: number) => (value > 0 && value < 0.5 ? '< 1 ms' : `${Math.round(value)} ms`);
const axisWords = (value: number) => (value >= 1_000 ? `${value / 1_000} s` : `${value} ms`);
const sumOf = (stages: Segment[]) => stages.reduce((sum, stage) => sum + stage.ms, 0);

export default function Ribbon({ conversation, state }: Props) {
  const live = useLive(conversation, state);
  const current = live.stages(performance.now());
  const turns = turnsOf(state.captions, MAX_TURNS - (current.length > 0 ? 1 : 0), live.seen);
  const totals = turns.map(({ totalMs }) => totalMs);
  const axis = axisMs([...totals, sumOf(current)]);
  const typical = median(totals);
  if (turns.length === 0 && current.length === 0) {
    return (
      <aside class="ribbon" aria-label="Latency">
        <h2 class="ribbon-title">Latency</h2>
        <p class="ribbon-empty">Each answer adds a row here: the time from your last sound to the first of the answer, stage by stage.</p>
      </aside>
    );
  }
  return (
    <aside class="ribbon" aria-label="Latency">
      <h2 class="ribbon-title">Latency</h2>
      <p class="ribbon-typical">
        {typical === null ? '…' : ms(typical)}
        <span>{turns.length < 2 ? 'from your last sound to the first of the answer' : `median of ${turns.length} answers`}</span>
      </p>
      <div class="ribbon-turns">
        <ol>
          {turns.map((turn) => (
            <li key={turn.id}>
              <a href={`dashboard#${turn.responseId}`} target="_blank" rel="opener" title={`${turn.words}\n${spoken(turn.stages)}`} aria-label={`${turn.words} ${ms(turn.totalMs)}; this turn in the dashboard`}>
                {Math.round(turn.totalMs)}
              </a>
            </li>
          ))}
          {current.length > 0 && <li aria-hidden="true">…</li>}
        </ol>
        <Bands rows={[...turns.map(({ stages }) => stages), ...(current.length > 0 ? [current] : [])]} axis={axis} />
      </div>
      <p class="ribbon-axis" aria-hidden="true">
        {[0, axis / 2, axis].map((at) => <span key={at}>{axisWords(at)}</span>)}
      </p>
      <Legend turns={turns} />
    </aside>
  );
}

/** Draws at each frame while a turn is being answered; with reduced motion at changes only. */
function useLive(conversation: Conversation, state: State): LiveTurn {
  const live = useMemo(() => new LiveTurn(), [conversation]);
  const [, draw] = useState(0);
  const phase = phaseOf(state);
  live.follow(state, conversation.levels.microphone, performance.now());
  useEffect(() => {
    if (phase !== 'hearing' && phase !== 'thinking') return;
    let frame = 0;
    const next = () => {
      frame = requestAnimationFrame(next);
      live.follow(conversation.state, conversation.levels.microphone, performance.now());
      if (phase === 'thinking' && !reduced.matches) draw((n) => n + 1);
    };
    frame = requestAnimationFrame(next);
    return () => cancelAnimationFrame(frame);
  }, [live, phase]);
  return live;
}

const spoken = (stages: Segment[]) => stages.map(({ key, ms: part }) => `${LABELS[key]} ${ms(part)}`).join('\n');

/** Where each stage begins and ends on the drawing. */
function placed(stages: Segment[], axis: number): { key: Segment['key']; from: number; to: number }[] {
  let at = 0;
  return stages.map(({ key, ms: part }) => ({ key, from: at, to: (at += (part / axis) * WIDTH) }));
}

function Bands({ rows, axis }: { rows: Segment[][]; axis: number }) {
  const bars = rows.map((stages) => placed(stages, axis));
  const height = Math.max(1, rows.length) * (BAR + FLOW);
  return (
    <svg class="ribbon-bands" viewBox={`0 0 ${WIDTH} ${height}`} preserveAspectRatio="none" style={{ height: `calc(${Math.max(1, rows.length)} * var(--row))` }} aria-hidden="true">
      {[0, 0.5, 1].map((part) => <line key={part} class="ribbon-tick" x1={part * WIDTH} x2={part * WIDTH} y1="0" y2={height} />)}
      {bars.map((bar, row) => {
        const top = row * (BAR + FLOW) + FLOW / 2;
        const next = bars[row + 1];
        return (
          <g key={row}>
            {bar.map(({ key, from, to }, i) => <rect key={i} class={`stage-${key}`} x={from} width={to - from} y={top} height={BAR} />)}
            {next && bar.map(({ key, from, to }, i) => {
              const nth = bar.slice(0, i).filter((stage) => stage.key === key).length;
              const below = next.filter((stage) => stage.key === key)[nth];
              return below && <path key={`to-${i}`} class={`ribbon-flow stage-${key}`} d={flow(from, to, below.from, below.to, top + BAR)} />;
            })}
          </g>
        );
      })}
    </svg>
  );
}

/** The band of a stage from one bar to the next. */
function flow(from: number, to: number, belowFrom: number, belowTo: number, top: number): string {
  const [middle, bottom] = [top + FLOW / 2, top + FLOW];
  return `M${from} ${top}C${from} ${middle} ${belowFrom} ${middle} ${belowFrom} ${bottom}H${belowTo}C${belowTo} ${middle} ${to} ${middle} ${to} ${top}Z`;
}

/** The stages that occurred, each with its median. */
function Legend({ turns }: { turns: Turn[] }) {
  const keys = (Object.keys(LABELS) as Segment['key'][]).filter((key) => turns.some(({ stages }) => stages.some((stage) => stage.key === key)));
  if (keys.length === 0) return null;
  const typical = (key: Segment['key']) => median(turns.map(({ stages }) => sumOf(stages.filter((stage) => stage.key === key)))) ?? 0;
  return (
    <dl class="stages ribbon-legend">
      {keys.map((key) => (
        <div key={key}>
          <dt>
            <i class={`dot stage-${key}`} />
            {LABELS[key]}
          </dt>
          <dd>{ms(typical(key))}</dd>
        </div>
      ))}
    </dl>
  );
}
