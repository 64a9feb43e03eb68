// Messages for the user about problems: what happened and what to do.

import type { MicrophoneFault } from '../audio/microphone';
import type { Readiness } from '../session/hub';
import type { Notice, Phase } from './model';

const MICROPHONE: Record<MicrophoneFault, [string, string]> = {
  insecure: [
    'This address cannot use a microphone',
    'Browsers allow it on https:// and on http://localhost only. Open the page there, or type your question below.',
  ],
  unsupported: ['This browser does not support microphones', 'Try a current Chrome, Edge, Firefox or Safari, or type your question below.'],
  missing: ['No microphone found', 'Plug one in or switch it on, then press the button again. You can also type below.'],
  refused: [
    'The microphone is not allowed',
    'Allow it for this page (the icon beside the address), then press the button again. You can also type below.',
  ],
  busy: ['The microphone could not be started', 'Another program may be using it. Close that program and press the button again, or type below.'],
};

export function microphoneFault(fault: MicrophoneFault): Notice {
  const [title, text] = MICROPHONE[fault];
  return { kind: 'microphone', tone: 'warning', title, text, action: fault === 'insecure' || fault === 'unsupported' ? null : 'retry' };
}

export const microphoneLost: Notice = {
  kind: 'microphone',
  tone: 'warning',
  title: 'The microphone was disconnected',
  text: 'It was unplugged or switched off. Press the button to continue, or type below.',
  action: 'retry',
};

export const noSound: Notice = {
  kind: 'info',
  tone: 'info',
  title: 'Text answers only',
  text: 'Browsers play live audio on https:// and on http://localhost only. Here you can type and read.',
  action: null,
};

/** Null if there is no problem. */
export function notReady(readiness: Readiness): Notice | null {
  switch (readiness.kind) {
    case 'ready':
      return null;
    case 'full':
      return {
        kind: 'link', tone: 'warning', title: 'All seats are taken',
        text: `The hub is serving ${readiness.sessions} conversations, its maximum. Try again in a moment.`, action: 'retry',
      };
    case 'loading':
      return { kind: 'link', tone: 'info', title: 'The hub is getting ready', text: 'Its engines are loading. This page continues automatically.', action: null };
    case 'unreachable':
      return {
        kind: 'link', tone: 'warning', title: 'The hub does not answer',
        text: 'It may be switched off, or the network is down. The conversation stays on this page.', action: 'retry',
      };
  }
}

/** A new session will be tried at `atMs` (`Date.now()`). */
export function reconnecting(why: Notice | null, atMs: number): Notice {
  return {
    kind: 'link', tone: 'warning', title: why?.title ?? 'The connection was lost',
    text: 'Trying again in {s} s. The conversation stays here and continues in a new session.', action: 'reconnect', untilMs: atMs,
  };
}

/** The hub keeps the session until `untilMs` (`Date.now()`), if the hub is still running. */
export function resuming(untilMs: number): Notice {
  return {
    kind: 'link', tone: 'warning', title: 'The connection was lost',
    text: 'Trying to reach the hub. For another {s} s the session can be resumed where it stopped. After that the conversation continues in a new session.',
    action: 'reconnect', untilMs,
  };
}

/** The hub is reachable but has discarded the session. */
export const sessionGone: Notice = {
  kind: 'info', tone: 'info', title: 'A new session has begun',
  text: 'The hub had discarded the old one. The conversation was transferred; an unfinished answer is lost.', action: null,
};

/** `wrong`: a key was sent, but the hub does not accept it. */
export function keyNeeded(wrong: boolean): Notice {
  return {
    kind: 'link', tone: 'warning', title: wrong ? 'The hub does not accept this key' : 'This hub requires a key',
    text: 'Ask the operator of the hub for it. It is stored in this tab only and removed when you close the tab.', action: 'key',
  };
}

export const opusFailed: Notice = {
  kind: 'info', tone: 'info', title: 'Using uncompressed audio', text: 'Compressed audio failed in this browser; the conversation continues without it.', action: null,
};

export const gaveUp: Notice = {
  kind: 'link', tone: 'warning', title: 'The connection could not be restored',
  text: 'The conversation stays here. Try again when the hub is back.', action: 'retry',
};

export function hubReported(message: string): Notice {
  return { kind: 'hub', tone: 'warning', title: 'The hub reports a problem', text: message, action: null };
}

/** `message`: the hub's message, which names what failed. */
export function transcriptionFailed(message?: string): Notice {
  return {
    kind: 'hub', tone: 'warning', title: 'Your words could not be transcribed',
    text: [message, 'Send the recording again, repeat what you said, or type it below.'].filter(Boolean).join(' '),
    action: 'repeat',
  };
}

export function replyFailed(message?: string): Notice {
  return { kind: 'hub', tone: 'warning', title: 'The answer failed', text: message ?? 'The hub could not finish it. Please ask again.', action: null };
}

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
