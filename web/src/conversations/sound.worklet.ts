// Runs on the audio thread: takes both sides of a conversation as two channels and sends them to the page.

import { Halver, SOUND, type SoundBlock } from './sound_block';

/** Per second. */
const BLOCKS = 10;

class SoundProcessor extends AudioWorkletProcessor {
  readonly #length = Math.round(sampleRate / 2 / BLOCKS);
  readonly #halvers = [new Halver(), new Halver()];
  readonly #sides = [new Int16Array(this.#length), new Int16Array(this.#length)];
  #n = 0;

  override process(inputs: Float32Array[][], outputs: Float32Array[][]): boolean {
    const length = outputs[0]?.[0]?.length ?? 128;
    const halves = this.#halvers.map((halver, side) => halver.process(inputs[0]?.[side] ?? new Float32Array(length)));
    for (let i = 0; i < length / 2; i++) {
      this.#sides.forEach((side, channel) => (side[this.#n] = Math.round(32_767 * Math.max(-1, Math.min(1, halves[channel]?.[i] ?? 0)))));
      this.#n += 1;
      if (this.#n === this.#length) this.#send();
    }
    return true;
  }

  #send(): void {
    const [you, hub] = this.#sides.map((side) => (side.some((sample) => sample !== 0) ? side.slice() : null));
    const block: SoundBlock = { nSamples: this.#n, sides: [you ?? null, hub ?? null] };
    this.#n = 0;
    this.port.postMessage(block, block.sides.flatMap((side) => (side ? [side.buffer] : [])));
  }
}

registerProcessor(SOUND, SoundProcessor);
