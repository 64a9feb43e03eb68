// Messages between the page and its two worklets.

import type { Chunk, QueueReport } from './queue.js';

export const CAPTURE = 'antiphon-capture';
export const PLAYBACK = 'antiphon-playback';

export interface CaptureOptions {
  /** Sampling rate of the emitted frames: 48000 for Opus, 24000 for PCM16. */
  toHz: number;
}

export type ToCapture = { kind: 'mute'; muted: boolean } | { kind: 'stop' };

/** One 20 ms frame of the microphone, mono, at `CaptureOptions.toHz`. */
export interface CapturedFrame {
  samples: Float32Array<ArrayBuffer>;
  /** Peaks of the render quanta since the last frame. */
  peaks: number[];
  quantumS: number;
  /** End of the last of these quanta on the context's clock. */
  endS: number;
}

export type ToPlayback =
  | { kind: 'chunk'; chunk: Chunk }
  | { kind: 'end'; itemId: string }
  | { kind: 'pause' | 'resume' | 'flush' | 'discard' };

export interface PlaybackReport extends QueueReport {
  /** Samples rendered since the worklet started, including silence. */
  renderedSamples: number;
  /** Context time of the report. */
  atS: number;
  /** `firstSounds` on the context's clock. */
  firstSoundTimes: { itemId: string; atS: number }[];
}
