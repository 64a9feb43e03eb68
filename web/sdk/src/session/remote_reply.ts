// Replies that the browser plays itself, from the track of a call: their level, and the position of the captions. The hub
// says when its output buffer starts, stops and is cleared; between these, the position is the time that has passed.

import { AUDIBLE } from '../audio/queue.js';
import type { ServerEvent } from '../protocol/events.js';

/** Interval of measurements. */
const EVERY_MS = 20;
const REPORT_EVERY_MS = 100;
const FFT_SIZE = 1_024;

export interface RemoteReplyHandlers {
  /** The peak since the last call, 0 to 1, and the samples since then at the context's rate. */
  measured: (peak: number, nSamples: number) => void;
  /** An item is played; its audio so far, in milliseconds. */
  playing: (itemId: string, playedMs: number) => void;
  /** The first audible sound of an item, on the context's clock. */
  sounded: (itemId: string, atS: number) => void;
  /** Playback has ended; these items were played completely. */
  ended: (itemIds: string[]) => void;
}

interface Playing {
  responseId: string;
  sinceS: number;
  hasSounded: boolean;
}

export class RemoteReply {
  readonly #context: AudioContext;
  readonly #handlers: RemoteReplyHandlers;
  readonly #element = new Audio();
  readonly #analyser: AnalyserNode;
  readonly #samples = new Float32Array(FFT_SIZE);
  readonly #timer: number;
  #source: MediaStreamAudioSourceNode | null = null;
  /** Spoken items by response, of responses that have not ended. */
  #items = new Map<string, string[]>();
  #playing: Playing | null = null;
  #measuredS: number;
  #reportedS = 0;

  constructor(context: AudioContext, handlers: RemoteReplyHandlers) {
    this.#context = context;
    this.#handlers = handlers;
    this.#measuredS = context.currentTime;
    this.#analyser = context.createAnalyser();
    this.#analyser.fftSize = FFT_SIZE;
    this.#element.autoplay = true;
    this.#timer = window.setInterval(() => this.#measure(), EVERY_MS);
  }

  /** Plays this stream. */
  play(stream: MediaStream): void {
    // The element plays: the browser removes its echo from the microphone. The source only measures.
    this.#element.srcObject = stream;
    void this.#element.play().catch(() => undefined);
    this.#source?.disconnect();
    this.#source = this.#context.createMediaStreamSource(stream);
    this.#source.connect(this.#analyser);
  }

  take(event: ServerEvent): void {
    switch (event.type) {
      case 'response.output_item.added': {
        const { item, response_id } = event;
        if (item.type === 'message') this.#items.set(response_id, [...(this.#items.get(response_id) ?? []), item.id]);
        return;
      }
      case 'output_audio_buffer.started':
        this.#playing = { responseId: event.response_id, sinceS: this.#context.currentTime, hasSounded: false };
        return this.#report();
      case 'output_audio_buffer.stopped': {
        const items = this.#items.get(event.response_id) ?? [];
        this.#report();
        return this.#over(event.response_id, items);
      }
      case 'output_audio_buffer.cleared':
        return this.#over(event.response_id, []);
    }
  }

  /** The replies in the audio graph. */
  get source(): AudioNode {
    return this.#analyser;
  }

  /** Rejects if there is no such device. */
  async use(loudspeaker: string, volume: number): Promise<void> {
    this.#element.volume = volume;
    await this.#element.setSinkId?.(loudspeaker);
  }

  close(): void {
    clearInterval(this.#timer);
    this.#source?.disconnect();
    this.#element.srcObject = null;
    this.#handlers.measured(0, 0);
  }

  #over(responseId: string, played: string[]): void {
    this.#items.delete(responseId);
    if (this.#playing?.responseId === responseId) this.#playing = null;
    this.#handlers.ended(played);
  }

  #measure(): void {
    const nowS = this.#context.currentTime;
    const nSamples = Math.round((nowS - this.#measuredS) * this.#context.sampleRate);
    if (nSamples <= 0) return;
    this.#measuredS = nowS;
    this.#analyser.getFloatTimeDomainData(this.#samples);
    const recent = this.#samples.subarray(Math.max(0, FFT_SIZE - nSamples));
    const peak = recent.reduce((most, sample) => Math.max(most, Math.abs(sample)), 0);
    this.#handlers.measured(peak, nSamples);
    const item = this.#item();
    if (item !== null && this.#playing && !this.#playing.hasSounded && peak > AUDIBLE) {
      this.#playing.hasSounded = true;
      this.#handlers.sounded(item, nowS);
    }
    if ((nowS - this.#reportedS) * 1_000 >= REPORT_EVERY_MS) this.#report();
  }

  #report(): void {
    const item = this.#item();
    if (item === null || !this.#playing) return;
    this.#reportedS = this.#context.currentTime;
    this.#handlers.playing(item, (this.#context.currentTime - this.#playing.sinceS) * 1_000);
  }

  /** Of several spoken items the first one: nothing says where the next begins. */
  #item(): string | null {
    return (this.#playing && this.#items.get(this.#playing.responseId)?.[0]) ?? null;
  }
}
