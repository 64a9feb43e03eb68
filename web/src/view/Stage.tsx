// The orb, which is the talk button, and the status line below it.

import { type Conversation, type State, phaseOf } from '@antiphon/client';
import { useEffect, useRef } from 'preact/hooks';
import { STATUS } from '../state/plain';
import { Orb } from './orb';
import { MicrophoneIcon, MutedIcon, StopIcon } from './icons';

interface Props {
  state: State;
  conversation: Conversation;
}

export function Stage({ state, conversation }: Props) {
  const phase = phaseOf(state);
  const talking = state.microphone !== 'off' || phase === 'reconnecting';
  const canvas = useRef<HTMLCanvasElement>(null);
  const orb = useRef<Orb | null>(null);
  useEffect(() => {
    if (!canvas.current) return;
    orb.current = new Orb(canvas.current, conversation.levels);
    return () => orb.current?.close();
  }, [conversation]);
  useEffect(() => {
    if (orb.current) orb.current.phase = phase;
  }, [phase]);

  return (
    <section class={`stage phase-${phase}`} aria-label="Voice">
      <button
        id="talk"
        type="button"
        class="orb"
        aria-pressed={talking}
        aria-label={talking ? 'Stop the conversation' : 'Start talking'}
        onClick={() => void conversation.talk()}
      >
        <canvas ref={canvas} class="orb-canvas" aria-hidden="true" />
        <span class="orb-icon">{talking ? <StopIcon /> : <MicrophoneIcon />}</span>
      </button>
      <p id="status" class="status" role="status">
        {STATUS[phase]}
      </p>
      <div class="controls">
        <button
          id="mute"
          type="button"
          class="pill"
          aria-pressed={state.muted}
          disabled={state.microphone !== 'on'}
          onClick={() => conversation.mute()}
        >
          {state.muted ? <MutedIcon /> : <MicrophoneIcon />}
          {state.muted ? 'Unmute' : 'Mute'}
        </button>
        <button id="hush" type="button" class="pill" disabled={state.playback === 'idle' && state.responseId === null} onClick={() => conversation.hush()}>
          <StopIcon />
          Stop answer
        </button>
      </div>
      <p class="keys" aria-hidden="true">
        <kbd>Space</kbd> talk <kbd>M</kbd> mute <kbd>Esc</kbd> stop answer
      </p>
    </section>
  );
}
