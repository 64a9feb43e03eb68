// The user's audio from the microphone to the wire: capture, encoder, and the loudness history from
// which the latency of each turn is measured.

import { type Codec, type MicrophoneEncoder, microphoneEncoder } from '../audio/codec.js';
import { LoudTracker } from '../audio/loudness.js';
import type { CapturedFrame } from '../audio/messages.js';
import { Microphone } from '../audio/microphone.js';
import { RecentAudio } from '../audio/recent.js';
import type { Span } from '../state/turn_clock.js';
import type { Levels } from './levels.js';

const FRAME_S = 0.02;

export interface UserAudioOptions {
  /** Address of `worklets.ts`, bundled. */
  worklets: string;
  codec: Codec;
  /** Id of the microphone; null: the browser's choice. */
  device: string | null;
  /** Its `microphone` is kept up to date. */
  levels: Levels;
  /** One encoded 20 ms frame. */
  payload: (payload: Uint8Array) => void;
  lost: () => void;
  failed: (cause: Error) => void;
}

export class UserAudio {
  readonly #encoder: MicrophoneEncoder;
  readonly #levels: Levels;
  readonly #loud = new LoudTracker();
  readonly #recent: RecentAudio;
  #microphone: Microphone | null = null;
  /** Context time of the last captured frame. */
  #latestS: number | null = null;

  static async open(context: AudioContext, options: UserAudioOptions): Promise<UserAudio> {
    const audio = new UserAudio(options);
    try {
      audio.#microphone = await Microphone.open(context, {
        worklets: options.worklets,
        device: options.device,
        toHz: audio.#encoder.rateHz,
        frame: (frame) => audio.#frame(frame),
        lost: options.lost,
      });
      return audio;
    } catch (cause) {
      audio.close();
      throw cause;
    }
  }

  private constructor({ codec, levels, payload, failed }: UserAudioOptions) {
    this.#levels = levels;
    this.#encoder = microphoneEncoder(codec, payload, failed);
    this.#recent = new RecentAudio(this.#encoder.rateHz);
  }

  /** The speech between two stream times, in the format of `wire.audioItem`; null if it is no longer stored. */
  async recording(startMs: number, endMs: number | null, nFramesSent: number): Promise<string | null> {
    return this.#recent.recording(startMs, endMs, nFramesSent * FRAME_S * 1000);
  }

  /** The microphone's track. */
  get track(): MediaStreamTrack | null {
    return this.#microphone?.track ?? null;
  }

  /** The microphone in the audio graph. */
  get source(): AudioNode | null {
    return this.#microphone?.source ?? null;
  }

  mute(muted: boolean): void {
    this.#microphone?.mute(muted);
    if (muted) this.#levels.microphone = 0;
  }

  /** Context time at which the stream's first sample was captured, given the number of frames sent since. */
  streamStartS(nFramesSent: number): number | null {
    return this.#latestS === null || nFramesSent === 0 ? null : this.#latestS - nFramesSent * FRAME_S;
  }

  lastLoud(span: Span): number | null {
    return this.#loud.lastLoud(span.fromS, span.toS);
  }

  close(): void {
    this.#microphone?.close();
    this.#encoder.close();
    this.#levels.microphone = 0;
  }

  #frame(frame: CapturedFrame): void {
    this.#latestS = frame.endS;
    this.#loud.push(frame.peaks, frame.quantumS, frame.endS);
    this.#levels.microphone = frame.peaks.reduce((most, peak) => Math.max(most, peak), 0);
    this.#recent.push(frame.samples);
    this.#encoder.encode(frame.samples);
  }
}
