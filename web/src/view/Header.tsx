// The page's name, the choice of the voice, and the switch for timings.

import type { State, Transport } from '@antiphon/client';
import { Mark } from './icons';

interface Props {
  state: State;
  voice: string | null;
  showTimings: boolean;
  transport: Transport;
  onVoice: (voice: string | null) => void;
  onTimings: (show: boolean) => void;
  onTransport: (transport: Transport) => void;
}

export function Header({ state, voice, showTimings, transport, onVoice, onTimings, onTransport }: Props) {
  const known = state.voices.some(({ id }) => id === voice);
  return (
    <header class="header">
      <h1 class="name">
        <Mark /> Antiphon
      </h1>
      <div class="choices">
        <label class="toggle">
          <input type="checkbox" checked={showTimings} onChange={(event) => onTimings(event.currentTarget.checked)} />
          <span>Timings</span>
        </label>
        {state.hub?.['webrtc'] === true && (
          <label class="choice">
            <span class="choice-name">Connection</span>
            <select id="transport" value={transport} onChange={(event) => onTransport(event.currentTarget.value === 'webrtc' ? 'webrtc' : 'websocket')}>
              <option value="websocket">WebSocket</option>
              <option value="webrtc">WebRTC</option>
            </select>
          </label>
        )}
        {state.voices.length > 0 && (
          <label class="choice">
            <span class="choice-name">Voice</span>
            <select id="voice" value={known ? (voice ?? '') : ''} onChange={(event) => onVoice(event.currentTarget.value || null)}>
              <option value="">Default</option>
              {state.voices.map(({ id, name, language }) => (
                <option key={id} value={id}>
                  {language ? `${name} (${language})` : name}
                </option>
              ))}
            </select>
          </label>
        )}
      </div>
    </header>
  );
}
