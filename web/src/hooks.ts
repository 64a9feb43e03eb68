// `window.__antiphon`: lets the browser tests observe what was really played. Read-only, and nothing
// in the page depends on it.

import { type Caption, type Conversation, phaseOf } from '@antiphon/client';

export interface Hooks {
  /** The phase shown by the orb: idle, connecting, listening, hearing, thinking, speaking ... */
  readonly phase: string;
  /** off, checking, connecting, live, waiting. */
  readonly link: string;
  /** `idle`, `playing` or `held`. */
  readonly playback: string;
  /** `opus` or `pcm16`; null until a conversation has started. */
  readonly codec: string | null;
  /** `websocket` or `webrtc`. */
  readonly transport: string;
  /** Peaks of the last 20 ms, 0 to 1. */
  readonly levels: { microphone: number; reply: number };
  /** Samples above -50 dBFS rendered by the playback worklet since the page was opened, at the context's rate. */
  readonly audibleSamples: number;
  /** All samples it rendered, including silence. */
  readonly renderedSamples: number;
  /** `performance.now()` of the last audible 20 ms; 0 if there were none. */
  readonly lastAudibleMs: number;
  readonly captions: readonly Caption[];
}

declare global {
  interface Window {
    __antiphon?: Hooks;
  }
}

export function exposeHooks(conversation: Conversation): void {
  window.__antiphon = {
    get phase() {
      return phaseOf(conversation.state);
    },
    get link() {
      return conversation.state.link;
    },
    get playback() {
      return conversation.state.playback;
    },
    get codec() {
      return conversation.codec;
    },
    get transport() {
      return conversation.transport;
    },
    get levels() {
      return { ...conversation.levels };
    },
    get audibleSamples() {
      return conversation.sound.audibleSamples;
    },
    get renderedSamples() {
      return conversation.sound.renderedSamples;
    },
    get lastAudibleMs() {
      return conversation.sound.lastAudibleMs;
    },
    get captions() {
      return conversation.state.captions;
    },
  };
}
