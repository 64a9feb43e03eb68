// The inspector's microphone and loudspeaker, for a server that speaks PCM16 in the events of the Realtime protocol. Loaded with
// the first "Talk". It sends and reads events only, through the page's connection, and detects no turns: the server does.

import { Microphone, MicrophoneError, type MicrophoneFault, type PlaybackReport, Speaker, floatFromPcm16, followSoundStart, pcm16FromFloat } from '@antiphon/client';
import worklets from '@antiphon/client/worklets.js?worker&url';
import { fields } from './data/redact';
import { type SessionAudio, fromBase64, toBase64 } from './data/speech';

export interface VoiceState {
  /** Audible sound that was played. */
  playedMs: number;
  /** What keeps it from talking or sounding, and what to do. */
  fault: string | null;
}

/** Frames of 20 ms in an event: 10 events a second, so that the list holds minutes of speech. */
const FRAMES_PER_EVENT = 5;
/** Positions of the loudspeaker count samples of this rate. */
const POSITION_PER_MS = 24;

const FAULTS: Record<MicrophoneFault, string> = {
  insecure: 'Browsers allow a microphone on https:// and on http://localhost only.',
  unsupported: 'This browser does not support microphones.',
  missing: 'No microphone was found. Connect one and press “Talk” again.',
  absent: 'The microphone is not there any more. Connect it and press “Talk” again.',
  refused: 'The microphone is not allowed. Allow it for this page (the icon beside the address) and press “Talk” again.',
  busy: 'The microphone could not be started. Another program may be using it.',
};
const LOST = 'The microphone was disconnected. Press “Talk” to go on.';
const NO_SOUND = 'The browser has not started the sound. Allow sound for this page, connect a loudspeaker, and press “Talk” again.';
const BROKEN = 'The browser did not load a part of this page. Reload it.';

export class Voice {
  readonly #context: AudioContext;
  readonly #send: (event: object) => boolean;
  readonly #changed: (state: VoiceState) => void;
  readonly #lost: (fault: string) => void;
  #state: VoiceState = { playedMs: 0, fault: null };
  #microphone: Microphone | null = null;
  #speaker: Speaker | null = null;
  #endSound: () => void;
  #frames: Float32Array[] = [];
  #audio: SessionAudio;
  /** Where the next audio of each unfinished item belongs, in samples at 24 kHz. */
  readonly #ends = new Map<string, number>();
  /** The item that was interrupted: the rest of its audio is not played. */
  #cut: string | null = null;
  #isOver = false;

  /**
   * `context`: made in the handler of a click; it is closed at the end. `audio`: the session's formats. `changed`: a fault ends
   * neither the microphone nor the connection. `lost`: the microphone has ended, and why.
   */
  constructor(context: AudioContext, audio: SessionAudio, send: (event: object) => boolean, changed: (state: VoiceState) => void, lost: (fault: string) => void) {
    this.#context = context;
    this.#audio = audio;
    this.#send = send;
    this.#changed = changed;
    this.#lost = lost;
    this.#endSound = followSoundStart(context, (isMissing) => {
      if (isMissing) this.#fail(NO_SOUND);
      else if (this.#state.fault === NO_SOUND) this.#set({ fault: null });
    });
  }

  /** Asks for the microphone. False: there is none, and `fault` says why. */
  async start(): Promise<boolean> {
    try {
      const speaker = await Speaker.open(this.#context, worklets, (report) => this.#played(report));
      const options = { worklets, device: null, toHz: this.#audio.inputHz, lost: () => this.#lost(LOST) };
      const microphone = await Microphone.open(this.#context, { ...options, frame: ({ samples }) => this.#frame(samples) });
      if (this.#isOver) return microphone.close(), false;
      this.#speaker = speaker;
      this.#microphone = microphone;
      return true;
    } catch (cause) {
      if (!this.#isOver) this.#fail(cause instanceof MicrophoneError ? FAULTS[cause.fault] : BROKEN);
      return false;
    }
  }

  stop(): void {
    this.#isOver = true;
    this.#endSound();
    this.#microphone?.close();
    void this.#context.close();
  }

  /** Plays the audio of an event, and stops where the user has begun to speak. */
  received(event: unknown): void {
    const { type, item_id: item, delta } = fields(event);
    if (type === 'input_audio_buffer.speech_started') return this.#speaker?.flush();
    if (typeof type !== 'string' || typeof item !== 'string') return;
    if (/^response\.(output_)?audio\.done$/.test(type)) {
      this.#speaker?.end(item);
      this.#ends.delete(item);
    }
    if (!/^response\.(output_)?audio\.delta$/.test(type) || typeof delta !== 'string' || item === this.#cut) return;
    const bytes = fromBase64(delta);
    if (bytes === null || this.#speaker === null) return;
    const samples = floatFromPcm16(bytes);
    const offset = this.#ends.get(item) ?? 0;
    this.#ends.set(item, offset + (samples.length * POSITION_PER_MS * 1_000) / this.#audio.outputHz);
    this.#speaker.play({ itemId: item, offset, rateHz: this.#audio.outputHz, samples });
  }

  #frame(samples: Float32Array): void {
    this.#frames.push(samples);
    if (this.#frames.length < FRAMES_PER_EVENT) return;
    const bytes = this.#frames.splice(0).map(pcm16FromFloat);
    const audio = new Uint8Array(bytes.reduce((sum, { length }) => sum + length, 0));
    bytes.reduce((at, part) => (audio.set(part, at), at + part.length), 0);
    this.#send({ type: 'input_audio_buffer.append', audio: toBase64(audio) });
  }

  #played({ audibleSamples, stopped }: PlaybackReport): void {
    if (stopped !== null) {
      this.#cut = stopped.itemId;
      this.#ends.delete(stopped.itemId);
      // The server's history keeps what was heard.
      this.#send({ type: 'conversation.item.truncate', item_id: stopped.itemId, content_index: 0, audio_end_ms: Math.floor(stopped.playedSamples / POSITION_PER_MS) });
    }
    const playedMs = Math.round((audibleSamples / this.#context.sampleRate) * 1_000);
    if (playedMs !== this.#state.playedMs) this.#set({ playedMs });
  }

  #fail(fault: string): void {
    this.#set({ fault });
  }

  #set(change: Partial<VoiceState>): void {
    this.#state = { ...this.#state, ...change };
    if (!this.#isOver) this.#changed(this.#state);
  }
}
