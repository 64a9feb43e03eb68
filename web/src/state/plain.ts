// Messages for the user about problems: what happened and what to do.

import type { MicrophoneFault, ModelNotice, Phase, Problem } from '@antiphon/client';
import type { Settings } from '../session/settings';

export interface Notice {
  kind: 'microphone' | 'link' | 'hub' | 'info';
  tone: 'info' | 'warning';
  title: string;
  /** `{s}` is replaced by the seconds until `untilMs`. */
  text: string;
  action: 'retry' | 'reconnect' | 'key' | 'repeat' | 'sound' | 'websocket' | null;
  /** `Date.now()` at the end of a countdown. */
  untilMs?: number;
}

const MICROPHONE: Record<MicrophoneFault | 'lost', [string, string]> = {
  insecure: [
    'This address cannot use a microphone',
    'Browsers allow it on https:// and on http://localhost only. Open the page there, or type your question below.',
  ],
  unsupported: ['This browser does not support microphones', 'Try a current Chrome, Edge, Firefox or Safari, or type your question below.'],
  missing: ['No microphone found', 'Plug one in or switch it on, then press the button again. You can also type below.'],
  absent: ['The chosen microphone is not there', 'Connect it, or choose another one in the settings. You can also type below.'],
  refused: [
    'The microphone is not allowed',
    'Allow it for this page (the icon beside the address), then press the button again. You can also type below.',
  ],
  busy: ['The microphone could not be started', 'Another program may be using it. Close that program and press the button again, or type below.'],
  lost: ['The microphone was disconnected', 'It was unplugged or switched off. Press the button to continue, or type below.'],
};

const SETTING_WORDS: Record<keyof Settings, string> = {
  microphone: 'microphone', loudspeaker: 'loudspeaker', volume: 'volume', voice: 'voice', speed: 'speed', language: 'language',
  instructions: 'instructions', pushToTalk: 'push to talk', eagerness: 'how soon answers come', ignoreBackchannels: 'what stops an answer',
  answersTypingInText: 'answers to what is typed',
  noiseReduction: 'noise reduction', transport: 'connection', captionSize: 'captions’ size', theme: 'theme', announces: 'announcements',
  showTimings: 'timings', keepsConversations: 'kept conversations',
};

/** Null if the address brought no settings. */
export function sharedNotice(shared: Partial<Settings>): Notice | null {
  const names = (Object.keys(shared) as (keyof Settings)[]).map((key) => SETTING_WORDS[key]);
  return names.length === 0 ? null : info('This address brought settings', `They are not saved: ${names.join(', ')}. The settings show them.`);
}

export const NOT_KEPT = info('The browser does not keep the settings', 'Its storage is full or switched off. They apply until this page is closed.');
export const NOT_STORED = info('The browser does not keep the conversation', 'Its storage is full or switched off. Save the conversation before you close this page.');
export const TALKS_ELSEWHERE: Notice = { ...info('You talk in another tab', 'Two tabs would hear each other, so this one has stopped. The conversation stays here.'), action: 'retry' };
export const NO_SOUND_YET: Notice = {
  ...info('The browser has not started the sound', 'Press “Start sound”. If that does not help, allow sound for this page (the icon beside the address) and connect a loudspeaker.'),
  action: 'sound', tone: 'warning',
};
export const NO_CALL = link('The call could not be connected', 'The browser found no way to the hub by WebRTC; a WebSocket may reach it. The conversation stays here.', 'websocket');
export const NOT_LOADED = info('A part of this page did not load', 'The connection to the hub may be down. Try again in a moment, or reload the page.');

const MODEL_TITLES: Partial<Record<string, string>> = {
  model_loading: 'The language model is loading',
  tool_rounds_spent: 'The model called its tools too often',
  calls_refused: 'The model called what it may not call',
  input_cut: 'Your words were too many for the model',
};

/** What the hub did about a request to the language model; the hub's words say more. Null if there is nothing. */
export function modelNoticeOf(notice: ModelNotice | null): Notice | null {
  return notice && info(MODEL_TITLES[notice.code] ?? 'About this answer', notice.message);
}

/** Null if there is no problem. */
export function noticeOf(problem: Problem | null): Notice | null {
  switch (problem?.kind) {
    case undefined:
      return null;
    case 'microphone': {
      const [title, text] = MICROPHONE[problem.fault];
      const isFinal = problem.fault === 'insecure' || problem.fault === 'unsupported';
      return { kind: 'microphone', tone: 'warning', title, text, action: isFinal ? null : 'retry' };
    }
    case 'loudspeaker':
      return info('The chosen loudspeaker is not there', 'Another one plays. Connect it, or choose another one in the settings.');
    case 'no-sound':
      return info('Text answers only', 'Browsers play live audio on https:// and on http://localhost only. Here you can type and read.');
    case 'audio-blocked':
      return hub('Audio could not be started', 'The browser did not load a part of this page. Reload it, and try another browser if that does not help.');
    case 'full':
      return link('The hub has no room', `The hub is serving ${problem.sessions} conversations and takes no further one now. Try again in a moment.`, 'retry');
    case 'loading':
      return { ...link('The hub is not ready', 'It takes no conversations at the moment: engines are loading, workers are missing, or it is about to stop. This page continues automatically.', null), tone: 'info' };
    case 'unreachable':
      return link('The hub does not answer', 'It may be switched off, or the network is down. The conversation stays on this page.', 'retry');
    case 'origin':
      return link('The hub does not allow this page', 'Its operator can add the origin of this page to server.allowed_origins.', 'retry');
    case 'gave-up':
      return link('The connection could not be restored', 'The conversation stays here. Try again when the hub is back.', 'retry');
    case 'refused':
      return link('The hub did not take the connection', 'It answers. A limit of your key or your address may be reached, or something between lets no WebSocket pass. Try again in a moment.', 'retry');
    case 'reconnecting': {
      const title = noticeOf(problem.why)?.title ?? 'The connection was lost';
      const text = 'Trying again in {s} s. The conversation stays here and continues in a new session.';
      return { ...link(title, text, 'reconnect'), untilMs: problem.untilMs };
    }
    case 'resuming': {
      const text =
        'Trying to reach the hub. For another {s} s the session can be resumed where it stopped. After that the conversation continues in a new session.';
      return { ...link('The connection was lost', text, 'reconnect'), untilMs: problem.untilMs };
    }
    case 'key': {
      const title = problem.wrong ? 'The hub does not accept this key' : 'This hub requires a key';
      return link(title, 'Ask the operator of the hub for it. It is stored in this tab only and removed when you close the tab.', 'key');
    }
    case 'session-replaced':
      return info('A new session has begun', 'The hub had discarded the old one. The conversation was transferred; an unfinished answer is lost.');
    case 'opus-failed':
      return info('Using uncompressed audio', 'Compressed audio failed in this browser; the conversation continues without it.');
    case 'hub':
      return hub('The hub reports a problem', problem.message);
    case 'unreadable':
      return hub('The hub reports a problem', `It sent something this page cannot read: ${problem.message}.`);
    case 'transcription': {
      const text = [problem.message, 'Send the recording again, repeat what you said, or type it below.'].filter(Boolean).join(' ');
      return { ...hub('Your words could not be transcribed', text), action: 'repeat' };
    }
    case 'empty':
      return hub('The answer was empty', 'The language model answered without a word. Ask again, in other words.');
    case 'tools': {
      const { limit } = problem;
      if (limit.kind === 'unknown') return info('The model called a function that is not there', `This page has no function “${limit.name}”. The model was asked to answer without functions.`);
      return info('The model called functions without end', `After ${limit.rounds} rounds it was asked to answer without them.`);
    }
    case 'response':
      return hub('The answer failed', problem.message ?? 'The hub could not finish it. Please ask again.');
  }
}

function link(title: string, text: string, action: Notice['action']): Notice {
  return { kind: 'link', tone: 'warning', title, text, action };
}

function info(title: string, text: string): Notice {
  return { kind: 'info', tone: 'info', title, text, action: null };
}

function hub(title: string, text: string): Notice {
  return { kind: 'hub', tone: 'warning', title, text, action: null };
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
