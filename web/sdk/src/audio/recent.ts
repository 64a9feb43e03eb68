// The last 30 s of the microphone. If the recognizer fails, the user can send the speech again as a recording. None of
// it leaves the page unless the user requests it.

import { WIRE_RATE_HZ } from '../protocol/frame.js';

const FRAME_MS = 20;
/** The hub's longest utterance; 6 MB at 48 kHz. */
const KEPT_MS = 30_000;

export class RecentAudio {
  readonly #rateHz: number;
  #frames: Float32Array[] = [];

  /** `rateHz`: sampling rate of the frames that will be pushed. */
  constructor(rateHz: number) {
    this.#rateHz = rateHz;
  }

  /** Adds the next 20 ms. */
  push(frame: Float32Array): void {
    this.#frames.push(frame);
    if (this.#frames.length > KEPT_MS / FRAME_MS) this.#frames.shift();
  }

  /**
   * The given part of the stream as mono PCM16 at 24 kHz in base64. `sentMs` is the length of the stream sent so far; a
   * null `endMs` means now. Null if its start is no longer stored.
   */
  async recording(startMs: number, endMs: number | null, sentMs: number): Promise<string | null> {
    // A copy: the microphone goes on. The code is loaded when it is needed, which is rare.
    const frames = [...this.#frames];
    return (await import('./recording.js')).recordingOf(frames, this.#rateHz, WIRE_RATE_HZ, startMs, endMs, sentMs);
  }
}
