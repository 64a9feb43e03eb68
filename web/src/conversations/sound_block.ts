// What the sound's worklet sends, and the filter that it halves the rate with.

export const SOUND = 'antiphon-sound';

/** A tenth of a second of both sides, PCM16 at half the context's rate. */
export interface SoundBlock {
  nSamples: number;
  /** You, Antiphon; null: silence. */
  sides: [Int16Array | null, Int16Array | null];
}

/** Odd; -60 dB above the new range with this window. */
const N_TAPS = 47;
/** Of the old rate: a little below the new half rate. */
const CUTOFF = 0.225;

/** A low-pass for a half of the rate: a sinc in a Blackman window, with a sum of 1. */
const TAPS = ((): Float32Array => {
  const middle = (N_TAPS - 1) / 2;
  const taps = Float32Array.from({ length: N_TAPS }, (_, i) => {
    const x = i - middle;
    const sinc = x === 0 ? 2 * CUTOFF : Math.sin(2 * Math.PI * CUTOFF * x) / (Math.PI * x);
    const turn = (2 * Math.PI * i) / (N_TAPS - 1);
    return sinc * (0.42 - 0.5 * Math.cos(turn) + 0.08 * Math.cos(2 * turn));
  });
  const sum = taps.reduce((all, tap) => all + tap, 0);
  return taps.map((tap) => tap / sum);
})();

/** Halves the rate of a stream, block by block. */
export class Halver {
  #past = new Float32Array(N_TAPS - 1);

  /** `block` has an even length. */
  process(block: Float32Array): Float32Array {
    const all = new Float32Array(this.#past.length + block.length);
    all.set(this.#past);
    all.set(block, this.#past.length);
    this.#past = all.slice(block.length);
    const out = new Float32Array(block.length / 2);
    for (let i = 0; i < out.length; i++) {
      let sum = 0;
      for (let k = 0; k < N_TAPS; k++) sum += (all[2 * i + k] ?? 0) * (TAPS[k] ?? 0);
      out[i] = sum;
    }
    return out;
  }
}
