// The engine of each stage, with links to the engines panel, to the dashboard and to the inspector.

import type { Engines } from '../state/engines';

const STAGES: ['vad' | 'stt' | 'llm' | 'tts', string][] = [
  ['vad', 'hears speech'],
  ['stt', 'transcribes'],
  ['llm', 'thinks'],
  ['tts', 'speaks'],
];

/** The protocol's name says little about an engine that is a server, so its model and address are shown. */
function EngineName({ engines, stage }: { engines: Engines | null; stage: 'vad' | 'stt' | 'llm' | 'tts' }) {
  const remote = stage === 'vad' ? undefined : engines?.remote?.[stage];
  return (
    <>
      <b>{remote?.model ?? engines?.[stage]}</b>
      {remote?.address && ` at ${remote.address}`}
    </>
  );
}

interface Props {
  engines: Engines | null;
  /** The codec, or the transport that brings its own. */
  carrier: string | null;
  onEngines: () => void;
}

export function Footer({ engines, carrier, onEngines }: Props) {
  return (
    <footer id="engines" class="footer">
      <button id="engines-open" type="button" class="engines-open" aria-haspopup="dialog" title="Engines and models" onClick={onEngines}>
        {STAGES.filter(([stage]) => engines?.[stage]).map(([stage, does]) => (
          <span key={stage} class="engine">
            <EngineName engines={engines} stage={stage} /> <span class="engine-does">{does}</span>
          </span>
        ))}
        {engines === null && <span class="engine">engines</span>}
      </button>
      {carrier && (
        <span class="engine">
          <b>{carrier}</b> carries
        </span>
      )}
      {/* A separate tab, so that the conversation continues; `opener` passes this tab's key to it. */}
      <a class="engine" href="dashboard" target="_blank" rel="opener">
        latency dashboard
      </a>
      <a class="engine" href="inspector" target="_blank">
        inspector
      </a>
    </footer>
  );
}
