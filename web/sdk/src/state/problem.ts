// What the user should know, as data: the words, and what to do about it, are the page's.

import type { MicrophoneFault } from '../audio/microphone.js';
import type { Readiness } from '../session/hub.js';
import type { ToolLimit } from '../session/tool_calls.js';

/** At most one is current. Times are `Date.now()`. */
export type Problem =
  /** There is no microphone to use; `lost`: it was disconnected while in use. */
  | { kind: 'microphone'; fault: MicrophoneFault | 'lost' }
  /** The chosen loudspeaker is not there; another one plays. */
  | { kind: 'loudspeaker' }
  /** The page is no secure context: text only. */
  | { kind: 'no-sound' }
  /** The browser does not load the code of the audio thread: see `ConversationOptions.worklets`. */
  | { kind: 'audio-blocked' }
  | { kind: 'full'; sessions: number }
  /** The hub loads its engines; the conversation begins by itself. */
  | { kind: 'loading' }
  | { kind: 'unreachable' }
  /** The hub answers, and does not let pages of this origin connect: the operator's `server.allowed_origins`. */
  | { kind: 'origin' }
  /** The hub does not answer any more; `retry` tries again. */
  | { kind: 'gave-up' }
  /** The hub answers, and took no connection: a limit of the key or the address is reached, or the way is blocked. */
  | { kind: 'refused' }
  /** A new session is tried at `untilMs`; `why`: what is known of the cause. */
  | { kind: 'reconnecting'; why: Problem | null; untilMs: number }
  /** The connection was lost. The hub keeps the session until `untilMs`, if it is still running. */
  | { kind: 'resuming'; untilMs: number }
  /** The hub requires a key; `wrong`: it does not accept the one that was sent. */
  | { kind: 'key'; wrong: boolean }
  /** The hub discarded the session; the conversation so far was transferred to a new one. */
  | { kind: 'session-replaced' }
  /** The browser's Opus failed; the conversation continues with PCM. */
  | { kind: 'opus-failed' }
  /** The hub reports an error; `code` is that of the protocol. */
  | { kind: 'hub'; message: string; code: string | null }
  /** The hub sent what this client cannot read. */
  | { kind: 'unreadable'; message: string }
  /** The user's words could not be transcribed; `retry` sends the recording again. */
  | { kind: 'transcription'; message: string | null }
  | { kind: 'response'; message: string | null }
  /** The model answered without a word. */
  | { kind: 'empty' }
  /** The model was asked without functions: it called one that there is not, or called without end. */
  | { kind: 'tools'; limit: ToolLimit };

const ABOUT_LINK: ReadonlySet<Problem['kind']> = new Set(['full', 'loading', 'unreachable', 'origin', 'gave-up', 'refused', 'reconnecting', 'resuming', 'key']);

/** Whether a problem is over once the connection is there. */
export function isAboutLink(problem: Problem | null): boolean {
  return problem !== null && ABOUT_LINK.has(problem.kind);
}

/** Null if the hub takes conversations. */
export function obstacleOf(readiness: Readiness): Problem | null {
  switch (readiness.kind) {
    case 'ready':
      return null;
    case 'full':
      return { kind: 'full', sessions: readiness.sessions };
    default:
      return { kind: readiness.kind };
  }
}
