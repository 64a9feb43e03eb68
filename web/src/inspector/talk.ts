// Whether the inspector talks: follows the session's formats, and loads `voice.ts` with the first "Talk". Inspector.tsx draws it.

import { PCM_AT_24K, type SessionAudio, audioAfter } from './data/speech';
import type { Voice, VoiceState } from './voice';

export interface TalkState extends VoiceState {
  phase: 'off' | 'asking' | 'on';
}

export const SILENT: TalkState = { phase: 'off', playedMs: 0, fault: null };
const NOT_PCM = 'The session’s audio is not PCM16, which is all that this page speaks.';
const NOT_LOADED = 'A part of this page did not load. Try again in a moment, or reload it.';

export class Talk {
  #state = SILENT;
  #audio: SessionAudio | null = PCM_AT_24K;
  #voice: Voice | null = null;
  /** Counts starts and ends: what belongs to an earlier one is void. */
  #n = 0;
  readonly #send: (event: object) => boolean;
  readonly #changed: (state: TalkState) => void;

  constructor(send: (event: object) => boolean, changed: (state: TalkState) => void) {
    this.#send = send;
    this.#changed = changed;
  }

  /** Call it in the handler of a click: browsers start sound in no other place. */
  async toggle(): Promise<void> {
    if (this.#state.phase !== 'off') return this.stop();
    if (this.#audio === null) return this.#set({ ...SILENT, fault: NOT_PCM });
    if (!window.isSecureContext) return this.#set({ ...SILENT, fault: 'Browsers allow a microphone on https:// and on http://localhost only.' });
    const n = ++this.#n;
    const audio = this.#audio;
    const context = new AudioContext({ latencyHint: 'interactive' });
    void context.resume();
    this.#set({ ...SILENT, phase: 'asking' });
    const code = await import('./voice').catch(() => null);
    if (code === null || n !== this.#n) {
      void context.close();
      if (n === this.#n) this.#set({ ...SILENT, fault: NOT_LOADED });
      return;
    }
    const changed = (state: VoiceState) => n === this.#n && this.#set({ ...this.#state, ...state });
    const voice = new code.Voice(context, audio, this.#send, changed, (fault) => n === this.#n && this.#end(fault));
    this.#voice = voice;
    if (await voice.start()) return this.#set({ ...this.#state, phase: 'on' });
    // One that was stopped meanwhile has ended.
    if (n === this.#n) this.#end(this.#state.fault);
  }

  /** An event of the connection. */
  received(event: unknown): void {
    this.#audio = audioAfter(event, this.#audio);
    this.#voice?.received(event);
  }

  stop(): void {
    if (this.#state.phase !== 'off') this.#end(null);
  }

  /** The connection is over: the next session begins with the usual formats. */
  closed(): void {
    this.#audio = PCM_AT_24K;
    this.stop();
  }

  #end(fault: string | null): void {
    this.#n += 1;
    this.#voice?.stop();
    this.#voice = null;
    this.#set({ ...SILENT, fault });
  }

  #set(state: TalkState): void {
    this.#state = state;
    this.#changed(state);
  }
}
