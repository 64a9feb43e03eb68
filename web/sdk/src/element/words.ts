// What the element says in words: of each phase, and of each problem what happened and what to do.

import type { Phase, Problem } from '../index.js';

export const STATUS: Record<Phase, string> = {
  idle: 'Press to talk',
  connecting: 'Connecting',
  reconnecting: 'Reconnecting',
  ready: 'Press to talk',
  listening: 'Listening',
  muted: 'Muted',
  hearing: 'Hearing you',
  thinking: 'Thinking',
  speaking: 'Speaking',
};

const MICROPHONE: Record<Extract<Problem, { kind: 'microphone' }>['fault'], string> = {
  insecure: 'Browsers allow a microphone on https:// and on http://localhost only. You can type instead.',
  unsupported: 'This browser does not support microphones. You can type instead.',
  missing: 'No microphone was found. Plug one in and press the button again, or type.',
  absent: 'The chosen microphone is not there. Plug it in and press the button again, or type.',
  refused: 'The microphone is blocked. Allow it for this page, beside its address, and press the button again, or type.',
  busy: 'The microphone could not be started. Another program may be using it. Close that program, or type.',
  lost: 'The microphone was disconnected. Press the button to continue, or type.',
};

export const NO_SOUND_YET = 'The browser has not started the sound. Press “Start sound”; if that does not help, allow sound for this page and connect a loudspeaker.';

/** Text for the user. */
export function wordsOf(problem: Problem): string {
  switch (problem.kind) {
    case 'microphone':
      return MICROPHONE[problem.fault];
    case 'loudspeaker':
      return 'The chosen loudspeaker is not there: another one plays.';
    case 'no-sound':
      return 'This page can play no sound here; answers are text.';
    case 'audio-blocked':
      return 'Audio could not be started: this page does not permit a part of it.';
    case 'full':
      return 'There is no room for this conversation now. Try again in a moment.';
    case 'loading':
      return 'The assistant is not ready. This continues by itself.';
    case 'unreachable':
      return 'The assistant does not answer. Try again in a moment.';
    case 'refused':
      return 'The assistant did not take the connection. Try again in a moment.';
    case 'origin':
      return 'This page may not use the assistant: the hub does not allow its origin.';
    case 'gave-up':
      return 'The connection could not be restored. What was said stays here.';
    case 'reconnecting':
    case 'resuming':
      return 'The connection was lost. Trying again.';
    case 'key':
      return problem.wrong ? 'This page may not use the assistant: its key is not accepted.' : 'This page needs a key to use the assistant.';
    case 'session-replaced':
      return 'A new session has begun. An unfinished answer is lost.';
    case 'opus-failed':
      return 'The conversation continues with uncompressed audio.';
    case 'hub':
    case 'unreadable':
      return `The assistant reports a problem: ${problem.message}`;
    case 'transcription':
      return 'Your words could not be transcribed. Send the recording again, repeat them, or type.';
    case 'response':
      return 'The answer failed. Please ask again.';
    case 'empty':
      return 'There was no answer. Please ask again, in other words.';
    case 'tools':
      return 'The assistant tried what it cannot do, and answered without it.';
  }
}

/** Whether `Conversation.retry` may help. */
export function isRetriable({ kind }: Problem): boolean {
  return ['full', 'unreachable', 'gave-up', 'refused', 'reconnecting', 'resuming', 'transcription'].includes(kind);
}
