// The state of a conversation, as plain data. Only `reduce.ts` creates a new state; levels, which change
// 60 times a second, are in `session/levels.ts`.

import type { Hops, ModelNotice, TimelineMarks } from '../protocol/events.js';
import type { HubStatus } from '../session/hub.js';
import type { Problem } from './problem.js';

/**
 * The connection. `resuming`: lost, the session and its response will be resumed. `waiting`: a new session will
 * be opened.
 */
export type Link = 'off' | 'checking' | 'connecting' | 'live' | 'resuming' | 'waiting';

export interface UserCaption {
  role: 'user';
  id: string;
  text: string;
  /** Words behind `text` that may still change; empty once the transcript is final. */
  draft: string;
  /** The hub accepted the speech as a turn; before that it may be a false start. */
  committed: boolean;
  /** True once the final transcript has arrived, or for typed text. */
  final: boolean;
  typed: boolean;
  /**
   * `unclear`: the hub detected speech but recognized no words; `failed`: the recognizer failed; `unsent`: typed, and not
   * confirmed by the hub.
   */
  fault: 'unclear' | 'failed' | 'unsent' | null;
}

export interface ReplyCaption {
  role: 'assistant';
  id: string;
  responseId: string;
  text: string;
  textDone: boolean;
  /** Whether it is spoken; false until audio, or words that are spoken, arrive. */
  sound: boolean;
  /** Audio received and played of this item, in milliseconds. */
  receivedMs: number;
  playedMs: number;
  audioDone: boolean;
  /** The hub made it to its end: its text and its audio are all there will be. */
  whole: boolean;
  /** Number of characters shown as spoken; never decreases while the response plays. Of a reply that was stopped, what the hub says was heard. */
  revealed: number;
  /** `cut`: interrupted by the user; `lost`: interrupted by a lost connection. */
  status: 'coming' | 'done' | 'cut' | 'lost' | 'failed';
  /**
   * From the end of the user's speech (or the Enter key) to the first sound. Of a spoken turn the hub's figure, by this client's
   * report; until that is known, from the last loud microphone sample to the first sound rendered by the worklet.
   */
  latencyMs: number | null;
  marks: TimelineMarks | null;
  hops: Hops;
}

export type Caption = UserCaption | ReplyCaption;

/**
 * A name of a caption that stays while sessions change: the id that it gets once its session is over. A hub may reuse item
 * numbers in each session.
 */
export function lastingId(caption: Caption, nSessions: number): string {
  const { id } = caption;
  // Text typed while connecting belongs to the new session.
  const isLasting = id.startsWith('past/') || (caption.role === 'user' && caption.typed);
  return isLasting ? id : `past/${nSessions}/${id}`;
}

export interface Voice {
  id: string;
  name: string;
  language: string | null;
}

export interface State {
  link: Link;
  microphone: 'off' | 'asking' | 'on';
  muted: boolean;
  /** Speech has started and not ended. */
  userSpeaking: boolean;
  /** The user's turn is over and no sound of the response was played. */
  awaiting: boolean;
  playback: 'idle' | 'playing' | 'held';
  /** The response being generated. */
  responseId: string | null;
  captions: Caption[];
  problem: Problem | null;
  /** The latest notice on a request to the language model, until the next response. */
  modelNotice: ModelNotice | null;
  /** What the hub says of itself; null until it has answered. */
  hub: HubStatus | null;
  voices: Voice[];
  /** The assistant has spoken in this session, after which the voice cannot change. */
  audioMade: boolean;
  /** Speaking rate learnt from completed responses; used to reveal words in time. */
  charsPerSecond: number;
  /** Number of sessions opened so far; it is part of the ids of captions from earlier sessions. */
  nSessions: number;
}

/** Characters per second of an English voice at normal speed; corrected by the first response. */
const INITIAL_CHARS_PER_S = 15;

export const initialState: State = {
  link: 'off',
  microphone: 'off',
  muted: false,
  userSpeaking: false,
  awaiting: false,
  playback: 'idle',
  responseId: null,
  captions: [],
  problem: null,
  modelNotice: null,
  hub: null,
  voices: [],
  audioMade: false,
  charsPerSecond: INITIAL_CHARS_PER_S,
  nSessions: 0,
};

/** What the conversation does, in one word. */
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
