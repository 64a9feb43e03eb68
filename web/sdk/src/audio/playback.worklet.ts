// Runs on the audio thread: plays the chunks from the page and reports the playhead about every
// 20 ms. The logic is in `queue.ts`; this file only connects it to the thread.

import { PLAYBACK, type PlaybackReport, type ToPlayback } from './messages.js';
import { PlaybackQueue } from './queue.js';

const REPORT_S = 0.02;

class PlaybackProcessor extends AudioWorkletProcessor {
  readonly #queue = new PlaybackQueue(sampleRate);
  #began: number | null = null;
  #rendered = 0;
  #sinceReport = 0;

  constructor(options: AudioWorkletNodeOptions) {
    super(options);
    this.port.onmessage = (message: MessageEvent<ToPlayback>) => this.#take(message.data);
  }

  override process(_inputs: Float32Array[][], outputs: Float32Array[][]): boolean {
    const [first, ...others] = outputs[0] ?? [];
    if (!first) return true;
    this.#began ??= currentTime;
    this.#queue.render(first);
    for (const channel of others) channel.set(first);
    this.#rendered += first.length;
    this.#sinceReport += first.length;
    if (this.#sinceReport >= REPORT_S * sampleRate) this.#report();
    return true;
  }

  #take(message: ToPlayback): void {
    switch (message.kind) {
      case 'chunk':
        return this.#queue.push(message.chunk);
      case 'end':
        return this.#queue.end(message.itemId);
      default:
        this.#queue[message.kind]();
        // A stop is displayed and reported immediately, not with the next regular report.
        this.#report();
    }
  }

  #report(): void {
    this.#sinceReport = 0;
    const report = this.#queue.report();
    const began = this.#began ?? currentTime;
    const message: PlaybackReport = {
      ...report,
      renderedSamples: this.#rendered,
      atS: currentTime,
      firstSoundTimes: report.firstSounds.map(({ itemId, atSample }) => ({ itemId, atS: began + atSample / sampleRate })),
    };
    this.port.postMessage(message);
  }
}

registerProcessor(PLAYBACK, PlaybackProcessor);
