// Audio output: the playback worklet behind a few calls. It is opened once per page and kept,
// because browsers start an AudioContext only in response to a click or a key.

import { PLAYBACK, type PlaybackReport, type ToPlayback } from './messages.js';
import type { Chunk } from './queue.js';

export class Speaker {
  /** The replies in the audio graph, before the volume. */
  readonly source: AudioWorkletNode;
  readonly #gain: GainNode;
  #nDiscards = 0;

  /** `worklets`: address of `worklets.ts`, bundled. */
  static async open(context: AudioContext, worklets: string, report: (report: PlaybackReport) => void): Promise<Speaker> {
    await context.audioWorklet.addModule(worklets);
    return new Speaker(context, report);
  }

  private constructor(context: AudioContext, report: (report: PlaybackReport) => void) {
    this.source = new AudioWorkletNode(context, PLAYBACK, {
      numberOfInputs: 0,
      numberOfOutputs: 1,
      outputChannelCount: [2],
    });
    this.source.port.onmessage = (message: MessageEvent<PlaybackReport>) => {
      // Reports on their way from before a `discard` are about void audio.
      if (message.data.nDiscards === this.#nDiscards) report(message.data);
    };
    this.#gain = context.createGain();
    this.source.connect(this.#gain).connect(context.destination);
  }

  /** Takes ownership of the samples; the caller must not use them again. */
  play(chunk: Chunk): void {
    const message: ToPlayback = { kind: 'chunk', chunk };
    this.source.port.postMessage(message, [chunk.samples.buffer as ArrayBuffer]);
  }

  /** 0 to 1. */
  set volume(volume: number) {
    this.#gain.gain.value = volume;
  }

  end(itemId: string): void {
    this.#post({ kind: 'end', itemId });
  }

  pause(): void {
    this.#post({ kind: 'pause' });
  }

  resume(): void {
    this.#post({ kind: 'resume' });
  }

  flush(): void {
    this.#post({ kind: 'flush' });
  }

  /** Discards all audio; nothing about it is reported any more. */
  discard(): void {
    this.#nDiscards++;
    this.#post({ kind: 'discard' });
  }

  #post(message: ToPlayback): void {
    this.source.port.postMessage(message);
  }
}
