// Which engine serves each stage, as the hub says it, and the way to the dashboard.

import type { Engines } from '../state/model';

const STAGES: [keyof Engines, string][] = [
  ['vad', 'hears speech'],
  ['stt', 'transcribes'],
  ['llm', 'thinks'],
  ['tts', 'speaks'],
];

export function Footer({ engines, codec }: { engines: Engines | null; codec: string | null }) {
  return (
    <footer id="engines" class="footer">
      {STAGES.filter(([stage]) => engines?.[stage]).map(([stage, does]) => (
        <span key={stage} class="engine">
          <b>{engines?.[stage]}</b> {does}
        </span>
      ))}
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
