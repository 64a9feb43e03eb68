// The playback queue: chunks per response item, in order, at the context's rate. The first chunk is
// played immediately to minimise latency; only after an underrun does playback wait to refill. It
// handles no messages and reads no clock: time is the number of rendered samples.
// `playback.worklet.ts` drives it.

import { Resampler } from './resample.js';

/** Wire rate of all reported positions, in Hz. */
const POSITION_HZ = 24_000;
/** Maximum queue length in seconds; a hub that paces stays near 0.3 s. Audio beyond it is rejected and counted. */
const MAX_QUEUED_S = 120;
/** Refill time after the first underrun within an item, and the longest one after further underruns, in seconds. */
const FIRST_REFILL_S = 0.04;
const MAX_REFILL_S = 0.16;
/** Ramp after a start or a resume, in seconds, which prevents a click when the waveform starts abruptly. */
const RAMP_S = 0.002;
/** -50 dBFS: quieter samples are inaudible. */
export const AUDIBLE = 0.00316;

export interface Chunk {
  itemId: string;
  /** Position of the first sample within the item, in 24 kHz samples. */
  offset: number;
  rateHz: number;
  samples: Float32Array;
}

interface Queued {
  itemId: string;
  offset: number;
  /** Length on the wire, in 24 kHz samples. */
  wireSamples: number;
  samples: Float32Array;
}

export type QueueState = 'empty' | 'filling' | 'playing' | 'paused';

/** Playback position of an item, or where it was stopped. */
export interface Position {
  itemId: string;
  playedSamples: number;
  underruns: number;
  underrunMs: number;
}

/** Events since the last report. */
export interface QueueReport {
  state: QueueState;
  /** The item at the playhead, or the last one. */
  itemId: string | null;
  /** Playhead within that item, in 24 kHz samples. */
  playedSamples: number;
  queuedMs: number;
  /** Number of underruns in the middle of that item, and their total duration. */
  underruns: number;
  underrunMs: number;
  /** The position of the item that was flushed. */
  stopped: Position | null;
  /** Largest absolute sample value rendered since the last report. */
  peak: number;
  /** Items that were played to their end. */
  finished: string[];
  /** Items whose first audible sample was rendered, with its index in the rendered stream. */
  firstSounds: { itemId: string; atSample: number }[];
  /** Number of samples above -50 dBFS rendered since the start. */
  audibleSamples: number;
  refused: number;
  /** Number of calls of `discard` so far. */
  nDiscards: number;
}

export class PlaybackQueue {
  readonly #rateHz: number;
  #chunks: Queued[] = [];
  #read = 0;
  #queued = 0;
  #paused = false;
  #filling = false;
  #resampler: { itemId: string; inner: Resampler } | null = null;
  #refillS = 0;
  #waited = 0;
  #itemId: string | null = null;
  #played = 0;
  #ended = new Set<string>();
  /** The item whose end was reported, and the one whose first sound was. */
  #over: string | null = null;
  #sounded: string | null = null;
  #gain = 0;
  #tail = 0;
  #rendered = 0;
  #peak = 0;
  #audible = 0;
  #refused = 0;
  /** Silence since the item at the playhead ran out of audio; it counts as an underrun if more audio follows. */
  #dry = 0;
  #underruns = 0;
  #underrun = 0;
  #stopped: Position | null = null;
  #nDiscards = 0;
  #finished: string[] = [];
  #firstSounds: { itemId: string; atSample: number }[] = [];

  constructor(rateHz: number) {
    this.#rateHz = rateHz;
  }

  push(chunk: Chunk): void {
    if (this.#queued > MAX_QUEUED_S * this.#rateHz) {
      this.#refused++;
      return;
    }
    if (this.#over === chunk.itemId) this.#over = null;
    const ranDry = this.#chunks.length === 0 && this.#itemId === chunk.itemId && this.#played > 0;
    if (ranDry) {
      this.#refillS = Math.min(MAX_REFILL_S, Math.max(FIRST_REFILL_S, this.#refillS * 2));
      this.#filling = true;
      this.#waited = 0;
    }
    const samples = this.#resamplerFor(chunk).process(chunk.samples);
    const wireSamples = Math.round((chunk.samples.length * POSITION_HZ) / chunk.rateHz);
    this.#chunks.push({ itemId: chunk.itemId, offset: chunk.offset, wireSamples, samples });
    this.#queued += samples.length;
  }

  /** No more chunks of this item are expected; later ones are still played. */
  end(itemId: string): void {
    this.#ended.add(itemId);
    if (this.#chunks.some((chunk) => chunk.itemId === itemId)) return;
    if (this.#itemId === itemId) this.#finish();
    // It had no audio, or is behind the playhead.
    else this.#finished.push(itemId);
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
  }

  /** Discards all queued audio immediately and prepares for the next response. */
  flush(): void {
    if (this.#itemId !== null && this.#over !== this.#itemId) this.#stopped = this.#position(this.#itemId);
    this.#dry = 0;
    this.#chunks = [];
    this.#read = 0;
    this.#queued = 0;
    this.#paused = false;
    this.#filling = false;
    this.#resampler = null;
    this.#itemId = null;
    this.#played = 0;
    this.#ended.clear();
  }

  /** Like `flush`, for audio that is void: nothing about it is reported any more. */
  discard(): void {
    this.flush();
    this.#stopped = null;
    this.#finished = [];
    this.#firstSounds = [];
    this.#over = null;
    this.#sounded = null;
    this.#nDiscards++;
  }

  render(out: Float32Array): void {
    let n = 0;
    if (this.#mayPlay(out.length)) {
      while (n < out.length && this.#chunks.length > 0) n = this.#copy(out, n);
    }
    if (n < out.length) {
      if (this.#itemId !== null && this.#over !== this.#itemId && !this.#paused) this.#dry += out.length - n;
      this.#fade(out, n);
    }
    this.#measure(out);
    this.#rendered += out.length;
  }

  report(): QueueReport {
    const report: QueueReport = {
      state: this.#state(),
      itemId: this.#itemId,
      playedSamples: Math.floor(this.#played),
      queuedMs: Math.round((this.#queued * 1000) / this.#rateHz),
      underruns: this.#underruns,
      underrunMs: (this.#underrun * 1000) / this.#rateHz,
      stopped: this.#stopped,
      peak: this.#peak,
      finished: this.#finished,
      firstSounds: this.#firstSounds,
      audibleSamples: this.#audible,
      refused: this.#refused,
      nDiscards: this.#nDiscards,
    };
    this.#peak = 0;
    this.#finished = [];
    this.#firstSounds = [];
    this.#stopped = null;
    return report;
  }

  #position(itemId: string): Position {
    const underrunMs = (this.#underrun * 1000) / this.#rateHz;
    return { itemId, playedSamples: Math.floor(this.#played), underruns: this.#underruns, underrunMs };
  }

  #resamplerFor(chunk: Chunk): Resampler {
    const known = this.#resampler;
    if (known?.itemId === chunk.itemId && known.inner.fromHz === chunk.rateHz) return known.inner;
    const inner = new Resampler(chunk.rateHz, this.#rateHz);
    this.#resampler = { itemId: chunk.itemId, inner };
    return inner;
  }

  #state(): QueueState {
    if (this.#paused) return 'paused';
    if (this.#chunks.length === 0) return 'empty';
    return this.#filling ? 'filling' : 'playing';
  }

  #mayPlay(blockLength: number): boolean {
    if (this.#paused || this.#chunks.length === 0) return false;
    if (!this.#filling) return true;
    this.#waited += blockLength;
    const target = this.#refillS * this.#rateHz;
    const first = this.#chunks[0];
    const enough = this.#queued >= target || (first !== undefined && this.#ended.has(first.itemId));
    // A hub that sends less audio than the refill requires must not silence the page for good.
    if (enough || this.#waited >= 2 * target) this.#filling = false;
    return !this.#filling;
  }

  /** Copies from the first chunk to `out` from index `n` on; returns the new fill level of `out`. */
  #copy(out: Float32Array, n: number): number {
    const chunk = this.#chunks[0];
    if (!chunk) return n;
    if (this.#itemId !== chunk.itemId) {
      this.#finish();
      if (this.#itemId !== null) this.#ended.delete(this.#itemId);
      this.#itemId = chunk.itemId;
      this.#underruns = this.#underrun = this.#dry = 0;
    }
    if (this.#dry > 0) {
      this.#underruns++;
      this.#underrun += this.#dry;
      this.#dry = 0;
    }
    const count = Math.min(out.length - n, chunk.samples.length - this.#read);
    const rise = 1 / (RAMP_S * this.#rateHz);
    for (let i = 0; i < count; i++) {
      if (this.#gain < 1) this.#gain = Math.min(1, this.#gain + rise);
      const sample = (chunk.samples[this.#read + i] ?? 0) * this.#gain;
      if (Math.abs(sample) > AUDIBLE) this.#hearFirst(chunk.itemId, n + i);
      out[n + i] = sample;
    }
    this.#read += count;
    this.#queued -= count;
    const part = chunk.samples.length === 0 ? 1 : this.#read / chunk.samples.length;
    this.#played = chunk.offset + chunk.wireSamples * part;
    if (this.#read >= chunk.samples.length) this.#dropFirst();
    this.#tail = out[n + count - 1] ?? 0;
    return n + count;
  }

  #dropFirst(): void {
    this.#chunks.shift();
    this.#read = 0;
    if (this.#chunks.length === 0 && this.#itemId !== null && this.#ended.has(this.#itemId)) this.#finish();
  }

  #hearFirst(itemId: string, index: number): void {
    if (this.#sounded === itemId) return;
    this.#sounded = itemId;
    this.#firstSounds.push({ itemId, atSample: this.#rendered + index });
  }

  /** Reports once that the item at the playhead has ended. */
  #finish(): void {
    if (this.#itemId === null || this.#over === this.#itemId) return;
    this.#over = this.#itemId;
    this.#finished.push(this.#itemId);
    this.#refillS /= 2;
  }

  /** Fades from the current sample value to silence over about a millisecond. */
  #fade(out: Float32Array, from: number): void {
    for (let i = from; i < out.length; i++) {
      this.#tail = Math.abs(this.#tail) < 1e-4 ? 0 : this.#tail * 0.94;
      out[i] = this.#tail;
    }
    this.#gain = 0;
  }

  #measure(out: Float32Array): void {
    for (const sample of out) {
      const size = Math.abs(sample);
      if (size > this.#peak) this.#peak = size;
      if (size > AUDIBLE) this.#audible++;
    }
  }
}
