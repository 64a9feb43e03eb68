// Everything the page shows, as plain data. `reduce.ts` alone makes a new one from an old one;
// levels (60 a second) are not in here, see `session/levels.ts`.

import type { TimelineMarks } from '../protocol/events';

/**
 * The connection: `resuming` means lost, and to be taken up where it broke off, the reply too; `waiting`, to
 * be tried again with a new session.
 */
export type Link = 'off' | 'checking' | 'connecting' | 'live' | 'resuming' | 'waiting';

export interface UserCaption {
  role: 'user';
  id: string;
  text: string;
  /** The hub took the speech as a turn; before that it may still turn out to be a cough. */
  committed: boolean;
  /** True once the final transcript is in, or for typed text. */
  final: boolean;
  typed: boolean;
  /**
   * `unclear`: the hub heard speech and could not make words of it; `failed`: its recognizer did not answer; `unsent`: typed,
   * and the hub has not confirmed it.
   */
  fault: 'unclear' | 'failed' | 'unsent' | null;
}

export interface ReplyCaption {
  role: 'assistant';
  id: string;
  responseId: string;
  text: string;
  textDone: boolean;
  /** False until audio arrives. */
  sound: boolean;
  /** Audio received and played of this item, in milliseconds. */
  receivedMs: number;
  playedMs: number;
  audioDone: boolean;
  /** Characters shown as spoken; never shrinks while the reply plays. */
  revealed: number;
  /** `cut`: by the user; `lost`: its connection was. */
  status: 'coming' | 'done' | 'cut' | 'lost' | 'failed';
  /** Last loud microphone sample (or the press of Enter) to the first sound out of the worklet. */
  latencyMs: number | null;
  marks: TimelineMarks | null;
}

export type Caption = UserCaption | ReplyCaption;

export interface Notice {
  /** One of each kind is shown at a time; a link notice goes when the link is back. */
  kind: 'microphone' | 'link' | 'hub' | 'info';
  tone: 'info' | 'warning';
  title: string;
  /** `{s}` stands for the seconds until `untilMs`. */
  text: string;
  action: 'retry' | 'reconnect' | 'key' | 'repeat' | null;
  /** `Date.now()` at the end of a wait that is counted down. */
  untilMs?: number;
}

export interface Voice {
  id: string;
  name: string;
  language: string | null;
}

export interface Engines {
  vad?: string;
  stt?: string;
  llm?: string;
  tts?: string;
  /** Of the engines that are servers: the model they were asked for, and where they are, as far as the hub says. */
  remote?: Partial<Record<'stt' | 'llm' | 'tts', { model: string | null; address: string | null }>>;
}

export interface State {
  link: Link;
  microphone: 'off' | 'asking' | 'on';
  muted: boolean;
  /** Speech began and did not end yet. */
  userSpeaking: boolean;
  /** The user's move is over and no sound of the answer has played. */
  awaiting: boolean;
  playback: 'idle' | 'playing' | 'held';
  /** The response being generated. */
  responseId: string | null;
  captions: Caption[];
  notice: Notice | null;
  engines: Engines | null;
  voices: Voice[];
  /** The voice cannot change any more in a session in which the assistant has spoken. */
  audioMade: boolean;
  /** Speaking rate learnt from finished replies; what reveals words in time. */
  charsPerSecond: number;
  /** Sessions opened so far; captions of earlier ones carry its number in their ids. */
  nSessions: number;
}

/** Characters a second of an English voice at normal speed; corrected by the first reply. */
const FIRST_GUESS_CHARS_PER_S = 15;

export const initialState: State = {
  link: 'off',
  microphone: 'off',
  muted: false,
  userSpeaking: false,
  awaiting: false,
  playback: 'idle',
  responseId: null,
  captions: [],
  notice: null,
  engines: null,
  voices: [],
  audioMade: false,
  charsPerSecond: FIRST_GUESS_CHARS_PER_S,
  nSessions: 0,
};

/** What the orb shows and the status line says. */
export type Phase =
  | 'idle'
  | 'connecting'
  | 'reconnecting'
  | 'ready'
  | 'listening'
  | 'muted'
  | 'hearing'
  | 'thinking'
  | 'speaking';

export function phaseOf(state: State): Phase {
  if (state.link === 'waiting' || state.link === 'resuming') return 'reconnecting';
  if (state.link === 'checking' || state.link === 'connecting' || state.microphone === 'asking') return 'connecting';
  if (state.link === 'off') return 'idle';
  if (state.userSpeaking) return 'hearing';
  if (state.playback === 'playing') return 'speaking';
  if (state.awaiting) return 'thinking';
  if (state.microphone === 'off') return 'ready';
  return state.muted ? 'muted' : 'listening';
}
