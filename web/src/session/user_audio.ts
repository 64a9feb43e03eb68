// The user's audio from the microphone to the wire: capture, encoder, and the loudness history from
// which the latency of each turn is measured.

import { type Codec, type MicrophoneEncoder, microphoneEncoder } from '../audio/codec';
import { LoudTracker } from '../audio/loudness';
import type { CapturedFrame } from '../audio/messages';
import { Microphone } from '../audio/microphone';
import { RecentAudio } from '../audio/recent';
import type { Span } from '../state/latency';
import { levels } from './levels';

const FRAME_S = 0.02;

export interface UserAudioHandlers {
  /** One encoded 20 ms frame. */
  payload: (payload: Uint8Array) => void;
  lost: () => void;
  failed: (cause: Error) => void;
}

export class UserAudio {
  readonly #encoder: MicrophoneEncoder;
  readonly #loud = new LoudTracker();
  readonly #recent: RecentAudio;
  #microphone: Microphone | null = null;
  /** Context time of the last captured frame. */
  #latestS: number | null = null;

  static async open(context: AudioContext, codec: Codec, handlers: UserAudioHandlers): Promise<UserAudio> {
    const audio = new UserAudio(codec, handlers);
    try {
      audio.#microphone = await Microphone.open(context, {
        toHz: audio.#encoder.rateHz,
        frame: (frame) => audio.#frame(frame),
        lost: handlers.lost,
      });
      return audio;
    } catch (cause) {
      audio.close();
      throw cause;
    }
  }

  private constructor(codec: Codec, handlers: UserAudioHandlers) {
    this.#encoder = microphoneEncoder(codec, handlers.payload, handlers.failed);
    this.#recent = new RecentAudio(this.#encoder.rateHz);
  }

  /** The speech between two stream times, in the format of `wire.audioItem`; null if it is no longer stored. */
  recording(startMs: number, endMs: number | null, nFramesSent: number): string | null {
    return this.#recent.recording(startMs, endMs, nFramesSent * FRAME_S * 1000);
  }

  /** The microphone's track. */
  get track(): MediaStreamTrack | null {
    return this.#microphone?.track ?? null;
  }

  mute(muted: boolean): void {
    this.#microphone?.mute(muted);
    if (muted) levels.microphone = 0;
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
    levels.microphone = 0;
  }

  #frame(frame: CapturedFrame): void {
    this.#latestS = frame.endS;
    this.#loud.push(frame.peaks, frame.quantumS, frame.endS);
    levels.microphone = frame.peaks.reduce((most, peak) => Math.max(most, peak), 0);
    this.#recent.push(frame.samples);
    this.#encoder.encode(frame.samples);
  }
}
