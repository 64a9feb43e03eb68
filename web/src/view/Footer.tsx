// Which engine serves each stage, as the hub says it.

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
    </footer>
  );
}
