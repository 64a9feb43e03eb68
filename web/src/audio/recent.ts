// The last half minute of the microphone, for a recognizer that failed: what was said can be sent once more as a recording.
// Nothing of it leaves the page unless the user asks for it.

import { WIRE_RATE_HZ } from '../protocol/frame';
import { pcm16FromFloat } from '../protocol/pcm';
import { Resampler } from './resample';

const FRAME_MS = 20;
/** As long as the hub lets one utterance be; 6 MB at 48 kHz. */
const KEPT_MS = 30_000;
/** Around the speech, so that no sound is cut off: the stream's clock is a frame or two ahead of what was encoded. */
const BEFORE_MS = 100;
const AFTER_MS = 200;

export class RecentAudio {
  readonly #rateHz: number;
  #frames: Float32Array[] = [];

  /** `rateHz`: of the frames that will be pushed. */
  constructor(rateHz: number) {
    this.#rateHz = rateHz;
  }

  /** The next 20 ms. */
  push(frame: Float32Array): void {
    this.#frames.push(frame);
    if (this.#frames.length > KEPT_MS / FRAME_MS) this.#frames.shift();
  }

  /**
   * Mono PCM16 at 24 kHz, in base64, of a stretch of the stream of which `sentMs` were sent so far; null `endMs` is now. Null
   * where its beginning is kept no more.
   */
  recording(startMs: number, endMs: number | null, sentMs: number): string | null {
    const at = (ms: number) => this.#frames.length - Math.ceil((sentMs - ms) / FRAME_MS);
    const from = at(startMs - BEFORE_MS);
    if (at(startMs) < 0 || sentMs <= startMs) return null;
    const frames = this.#frames.slice(Math.max(0, from), endMs === null ? undefined : at(endMs + AFTER_MS));
    if (frames.length === 0) return null;
    const resampler = new Resampler(this.#rateHz, WIRE_RATE_HZ);
    return base64(frames.map((frame) => pcm16FromFloat(resampler.process(frame))));
  }
}

function base64(pieces: Uint8Array[]): string {
  let text = '';
  for (const piece of pieces) text += String.fromCharCode(...piece);
  return btoa(text);
}
