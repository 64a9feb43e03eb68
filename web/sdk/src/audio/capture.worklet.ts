// Runs on the audio thread: takes the microphone at the context's rate and emits 20 ms mono frames at
// the codec's rate, with the peaks needed for the latency measurement. While muted it emits silence,
// so that the stream's sample count continues without a gap.

import { Framer } from './framer.js';
import { CAPTURE, type CaptureOptions, type CapturedFrame, type ToCapture } from './messages.js';
import { Resampler } from './resample.js';

class CaptureProcessor extends AudioWorkletProcessor {
  readonly #resampler: Resampler;
  readonly #framer: Framer;
  #muted = false;
  #stopped = false;
  #peaks: number[] = [];

  constructor(options: AudioWorkletNodeOptions) {
    super(options);
    const { toHz } = options.processorOptions as CaptureOptions;
    this.#resampler = new Resampler(sampleRate, toHz);
    this.#framer = new Framer(toHz / 50);
    this.port.onmessage = (message: MessageEvent<ToCapture>) => {
      if (message.data.kind === 'mute') this.#muted = message.data.muted;
      else this.#stopped = true;
    };
  }

  override process(inputs: Float32Array[][], outputs: Float32Array[][]): boolean {
    const length = outputs[0]?.[0]?.length ?? 128;
    const block = this.#muted ? new Float32Array(length) : mono(inputs[0] ?? [], length);
    this.#peaks.push(block.reduce((most, sample) => Math.max(most, Math.abs(sample)), 0));
    for (const samples of this.#framer.push(this.#resampler.process(block))) {
      const quantumS = length / sampleRate;
      const frame: CapturedFrame = { samples, peaks: this.#peaks, quantumS, endS: currentTime + quantumS };
      this.#peaks = [];
      this.port.postMessage(frame, [samples.buffer]);
    }
    return !this.#stopped;
  }
}

/** The mean of all channels; silence while the microphone provides no data. */
function mono(channels: Float32Array[], length: number): Float32Array {
  const block = new Float32Array(length);
  for (const channel of channels) {
    for (let i = 0; i < length; i++) block[i] = (block[i] ?? 0) + (channel[i] ?? 0) / channels.length;
  }
  return block;
}

registerProcessor(CAPTURE, CaptureProcessor);
