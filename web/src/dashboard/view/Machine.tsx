// The machine and its queues, now and since the page was opened.

import { useMemo } from 'preact/hooks';
import type uPlot from 'uplot';
import { type Gpu, type HubState, type Load, isBytes, queuedOf } from '../data/turn';
import { bytes } from '../data/words';
import { type Ink, Plot, times } from './Plot';

/** A queue of this depth raises the alert in `configs/prometheus/`. */
const DEEP = 100;

const QUEUES: Record<string, string> = {
  stt_waiting: 'utterances for a decoder',
  tts_waiting: 'chunks for a voice',
  inbound_kib: 'messages received',
};

const ENGINES: [string, string][] = [
  ['vad', 'hears speech'],
  ['stt', 'transcribes'],
  ['llm', 'thinks'],
  ['tts', 'speaks'],
];

export function Machine({ states, isOneOfSeveral }: { states: readonly HubState[]; isOneOfSeveral: boolean }) {
  const state = states.at(-1);
  if (state === undefined) return null;
  const queued = queuedOf(state);
  return (
    <section class="card area-machine" id="machine" aria-label="Load">
      <h2>Load{isOneOfSeveral && ' of this hub'}</h2>
      <div class="machine">
        <History name="Sessions" value={String(state.sessions)} states={states} of={sessionsOf} ink="you" />
        <History name="Queued" value={queued === null ? 'unknown' : String(queued)} states={states} of={queuedOf} ink="p99" />
        <History name="Processor" value={state.cpuPercent === null ? 'unknown' : `${state.cpuPercent.toFixed(0)} %`} note="of one core" states={states} of={cpuOf} ink="hub" />
        <History name="Memory" value={state.memoryBytes === null ? 'unknown' : bytes(state.memoryBytes)} states={states} of={memoryOf} ink="p95" />
        {state.load !== null && <Pressure load={state.load} />}
        <Queues queues={state.queues} />
        <Gpus gpus={state.gpus} />
        <div class="box">
          <h3>Engines</h3>
          <dl class="facts">
            {ENGINES.filter(([stage]) => state.engines[stage]).map(([stage, does]) => (
              <div key={stage}>
                <dt>{does}</dt>
                <dd>{state.engines[stage]}</dd>
              </div>
            ))}
          </dl>
        </div>
      </div>
    </section>
  );
}

const sessionsOf = (state: HubState) => state.sessions;
const cpuOf = (state: HubState) => state.cpuPercent;
const memoryOf = (state: HubState) => (state.memoryBytes === null ? null : state.memoryBytes / 2 ** 20);

interface HistoryProps {
  name: string;
  value: string;
  note?: string;
  states: readonly HubState[];
  of: (state: HubState) => number | null;
  ink: string;
}

function History({ name, value, note = '', states, of, ink }: HistoryProps) {
  const data = useMemo<uPlot.AlignedData>(() => [states.map(({ at }) => at / 1000), states.map(of)], [states, of]);
  const options = useMemo(() => optionsOf(ink), [ink]);
  return (
    <div class="box history">
      <h3>
        {name} <b>{value}</b> <span class="quiet">{note}</span>
      </h3>
      <Plot data={data} options={options} label={`${name} over time, now ${value} ${note}`} />
    </div>
  );
}

function optionsOf(colour: string) {
  return (ink: Ink): Omit<uPlot.Options, 'width' | 'height'> => ({
    legend: { show: false },
    cursor: { show: false },
    padding: [6, 4, 0, 0],
    // At least two minutes wide, so that the first points do not jump across the chart.
    scales: {
      x: { time: true, range: (plot) => [Math.min(plot.data[0][0] ?? 0, (plot.data[0].at(-1) ?? 0) - 120), plot.data[0].at(-1) ?? 1] },
      y: { range: (_, __, max) => [0, Math.max(1, (max ?? 0) * 1.15)] },
    },
    axes: [
      { stroke: ink('ink-faint'), grid: { show: false }, ticks: { show: false }, font: '11px system-ui', size: 20, space: 75, values: times },
      { stroke: ink('ink-faint'), grid: { stroke: ink('grid'), width: 1 }, ticks: { show: false }, font: '11px system-ui', size: 34, space: 22, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000] },
    ],
    series: [{}, { stroke: ink(colour), width: 1.5, fill: `${ink(colour)}22`, points: { show: false } }],
  });
}

const SIGNALS: Record<string, string> = {
  latency: 'voice to voice',
  processor: 'processor',
  timers: 'timers',
  stt_queue: 'wait for a decoder',
  tts_queue: 'wait for a voice',
  decode: 'decode steps',
};

const LEVELS: Record<string, string> = {
  normal: 'Nothing is left out.',
  no_speculation: 'Overloaded: no speculative responses.',
  short_look_ahead: 'Overloaded: short look-ahead.',
  smaller_engines: 'Overloaded: smaller engines for new sessions.',
  no_jobs: 'Overloaded: no new jobs.',
  no_speech_requests: 'Overloaded: no new speech requests.',
  no_sessions: 'Overloaded: no new sessions.',
};

function Pressure({ load }: { load: Load }) {
  return (
    <div class="box" id="pressure">
      <h3>
        Capacity <span class="quiet">share of each limit</span>
      </h3>
      <p class={load.brownout > 0 ? 'bad' : 'quiet'}>{LEVELS[load.level] ?? load.level.replaceAll('_', ' ')}</p>
      <dl class="facts">
        {Object.entries(load.pressure).map(([signal, share]) => (
          <div key={signal} class={share >= 1 ? 'bad' : ''}>
            <dt>{SIGNALS[signal] ?? signal.replaceAll('_', ' ')}</dt>
            <dd>
              <meter min={0} max={1} high={0.8} value={Math.min(share, 1)} aria-label={`${Math.round(share * 100)} % of the limit`} />
              {Math.round(share * 100)} %
            </dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

function Queues({ queues }: { queues: Record<string, number> }) {
  const all = Object.entries(queues);
  return (
    <div class="box" id="queues">
      <h3>Queue depths</h3>
      {all.length === 0 ? (
        <p class="quiet">No queues are reported.</p>
      ) : (
        <dl class="facts">
          {all.map(([name, depth]) => (
            <div key={name} class={depth > DEEP && !isBytes(name) ? 'bad' : ''}>
              <dt>{QUEUES[name] ?? name.replaceAll('_', ' ')}</dt>
              <dd>
                {isBytes(name) ? (
                  bytes(depth * 1024)
                ) : (
                  <>
                    <meter min={0} max={DEEP} high={DEEP * 0.8} value={Math.min(depth, DEEP)} aria-label={`${depth} waiting`} />
                    {depth}
                  </>
                )}
              </dd>
            </div>
          ))}
        </dl>
      )}
    </div>
  );
}

function Gpus({ gpus }: { gpus: Gpu[] | null }) {
  return (
    <div class="box" id="gpu">
      <h3>GPU</h3>
      {gpus === null ? (
        <p class="quiet">No GPU is reported.</p>
      ) : (
        <dl class="facts">
          {gpus.map(({ name, utilization, memoryBytes, memoryTotalBytes }, i) => (
            <div key={i}>
              <dt>{name}</dt>
              <dd>
                {utilization === null ? 'load unknown' : `${utilization} %`}
                {memoryBytes !== null && `, ${bytes(memoryBytes)}${memoryTotalBytes === null ? '' : ` of ${bytes(memoryTotalBytes)}`}`}
              </dd>
            </div>
          ))}
        </dl>
      )}
    </div>
  );
}
