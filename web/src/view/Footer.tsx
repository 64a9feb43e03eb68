// Which engine serves each stage, as the hub says it, with the way to more about them and to the dashboard.

import type { Engines } from '../state/model';

const STAGES: [keyof Engines, string][] = [
  ['vad', 'hears speech'],
  ['stt', 'transcribes'],
  ['llm', 'thinks'],
  ['tts', 'speaks'],
];

interface Props {
  engines: Engines | null;
  codec: string | null;
  onEngines: () => void;
}

export function Footer({ engines, codec, onEngines }: Props) {
  return (
    <footer id="engines" class="footer">
      <button id="engines-open" type="button" class="engines-open" aria-haspopup="dialog" title="Engines and models" onClick={onEngines}>
        {STAGES.filter(([stage]) => engines?.[stage]).map(([stage, does]) => (
          <span key={stage} class="engine">
            <b>{engines?.[stage]}</b> {does}
          </span>
        ))}
        {engines === null && <span class="engine">engines</span>}
      </button>
      {codec && (
        <span class="engine">
          <b>{codec}</b> carries
        </span>
      )}
      {/* A tab of its own, so that the conversation goes on; `opener` hands it this tab's key. */}
      <a class="engine" href="dashboard" target="_blank" rel="opener">
        latency dashboard
      </a>
    </footer>
  );
}
