// The orb, which is the talk button, and the status line below it.

import { type Conversation, type State, phaseOf } from '@antiphon/client';
import { useEffect, useRef } from 'preact/hooks';
import { STATUS } from '../state/plain';
import type { PressToTalk } from '../session/press';
import { Orb } from './orb';
import { MicrophoneIcon, MutedIcon, StopIcon } from './icons';

interface Props {
  state: State;
  /** The user holds a key to talk; null: the hub detects turns. */
  press: PressToTalk | null;
  announces: boolean;
  conversation: Conversation;
}

export function Stage({ state, conversation, press, announces }: Props) {
  const phase = phaseOf(state);
  // A closed microphone is no fault there.
  const status = press && phase === 'muted' ? 'Hold to talk' : STATUS[phase];
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
    <section class={`stage phase-${press && phase === 'muted' ? 'ready' : phase}`} aria-label="Voice">
      <button
        id="talk"
        type="button"
        class="orb"
        aria-label={talking ? 'Stop the conversation' : 'Start talking'}
        onClick={() => void conversation.talk()}
      >
        <canvas ref={canvas} class="orb-canvas" aria-hidden="true" />
        <span class="orb-icon">{talking ? <StopIcon /> : <MicrophoneIcon />}</span>
      </button>
      <p id="status" class="status" role="status" aria-live={announces ? 'polite' : 'off'}>
        {status}
      </p>
      <div class="controls">
        {press ? <HoldButton press={press} held={!state.muted} disabled={state.microphone !== 'on'} /> : <button
          id="mute"
          type="button"
          class={`pill ${state.muted ? 'active' : ''}`}
          disabled={state.microphone !== 'on'}
          onClick={() => conversation.mute()}
        >
          {state.muted ? <MutedIcon /> : <MicrophoneIcon />}
          {state.muted ? 'Unmute' : 'Mute'}
        </button>}
        <button id="hush" type="button" class="pill" disabled={state.playback === 'idle' && state.responseId === null} onClick={() => conversation.hush()}>
          <StopIcon />
          Stop answer
        </button>
      </div>
      <p class="keys" aria-hidden="true">
        <kbd>Space</kbd> {press && state.microphone === 'on' ? 'hold to talk' : 'talk'}
        {!press && (
          <>
            {' '}
            <kbd>M</kbd> mute
          </>
        )}{' '}
        <kbd>Esc</kbd> stop answer
      </p>
    </section>
  );
}

function HoldButton({ press, held, disabled }: { press: PressToTalk; held: boolean; disabled: boolean }) {
  const isKey = (event: KeyboardEvent) => event.key === ' ' || event.key === 'Enter';
  return (
    <button
      id="hold"
      type="button"
      class="pill hold"
      aria-pressed={held && !disabled}
      disabled={disabled}
      onPointerDown={(event) => {
        // The release counts wherever the finger is by then.
        event.currentTarget.setPointerCapture(event.pointerId);
        press.press();
      }}
      onPointerUp={() => press.release()}
      onPointerCancel={() => press.release()}
      onContextMenu={(event) => event.preventDefault()}
      onKeyDown={(event) => isKey(event) && press.press()}
      onKeyUp={(event) => isKey(event) && press.release()}
    >
      <MicrophoneIcon />
      Hold to talk
    </button>
  );
}
