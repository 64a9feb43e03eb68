// The last 30 s of the microphone. If the recognizer fails, the user can send the speech again as a recording. None of
// it leaves the page unless the user requests it.

import { WIRE_RATE_HZ } from '../protocol/frame.js';
import { pcm16FromFloat } from '../protocol/pcm.js';

const FRAME_MS = 20;
/** The hub's longest utterance; 6 MB at 48 kHz. */
const KEPT_MS = 30_000;
/** Margin around the speech, because the stream's clock is a frame or two ahead of the encoded audio. */
const BEFORE_MS = 100;
const AFTER_MS = 200;

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
    const at = (ms: number) => this.#frames.length - Math.ceil((sentMs - ms) / FRAME_MS);
    const from = at(startMs - BEFORE_MS);
    if (at(startMs) < 0 || sentMs <= startMs) return null;
    const frames = this.#frames.slice(Math.max(0, from), endMs === null ? undefined : at(endMs + AFTER_MS));
    if (frames.length === 0) return null;
    const samples = await atWireRate(frames, this.#rateHz);
    return base64(pcm16FromFloat(samples));
  }
}

/** Resampled by the browser. */
async function atWireRate(frames: Float32Array[], rateHz: number): Promise<Float32Array> {
  const joined = new Float32Array(frames.reduce((sum, { length }) => sum + length, 0));
  frames.reduce((at, frame) => (joined.set(frame, at), at + frame.length), 0);
  if (rateHz === WIRE_RATE_HZ) return joined;
  const context = new OfflineAudioContext(1, Math.round((joined.length * WIRE_RATE_HZ) / rateHz), WIRE_RATE_HZ);
  const buffer = context.createBuffer(1, joined.length, rateHz);
  buffer.copyToChannel(joined, 0);
  const source = context.createBufferSource();
  source.buffer = buffer;
  source.connect(context.destination);
  source.start();
  return (await context.startRendering()).getChannelData(0);
}

function base64(bytes: Uint8Array): string {
  let text = '';
  // As many arguments as any browser takes.
  for (let at = 0; at < bytes.length; at += 8_192) text += String.fromCharCode(...bytes.subarray(at, at + 8_192));
  return btoa(text);
}
