// A streaming resampler between any two rates: windowed sinc, read from a table.
// Both worklets use it, because a context may run at 44.1 or 48 kHz whatever rate was requested.
// It accepts blocks of any length; the output has no discontinuities between them. Its delay is
// ZERO_CROSSINGS samples of the lower rate (0.7 ms at 24 kHz).

/** Zero crossings of the kernel on each side; 16 keep the stop band below about -70 dB. */
const ZERO_CROSSINGS = 16;
/** Table entries between two zero crossings; values between them are interpolated. */
const STEPS = 256;
/** Fraction of the lower band that passes; the rest is the transition band. */
const PASS_BAND = 0.94;

const KERNEL = buildKernel();

export class Resampler {
  readonly fromHz: number;
  readonly toHz: number;
  /** Input samples needed for later outputs, oldest first. */
  #history: Float32Array;
  /**
   * Position of the next output sample, in input samples from the start of `#history`, times `#up`.
   * It is an integer, so it neither drifts nor depends on the block boundaries.
   */
  #position: number;
  readonly #up: number;
  readonly #down: number;
  readonly #cutoff: number;
  readonly #reach: number;

  constructor(fromHz: number, toHz: number) {
    if (!(fromHz > 0) || !(toHz > 0)) throw new RangeError(`cannot resample ${fromHz} Hz to ${toHz} Hz`);
    this.fromHz = fromHz;
    this.toHz = toHz;
    const common = greatestCommonDivisor(Math.round(fromHz), Math.round(toHz));
    this.#up = Math.round(toHz) / common;
    this.#down = Math.round(fromHz) / common;
    this.#cutoff = Math.min(1, toHz / fromHz) * PASS_BAND;
    this.#reach = Math.ceil(ZERO_CROSSINGS / this.#cutoff);
    this.#history = new Float32Array(this.#reach);
    this.#position = this.#reach * this.#up;
  }

  /** The output samples completed by this block; the caller owns the result. */
  process(block: Float32Array): Float32Array {
    if (this.fromHz === this.toHz) return block.slice();
    const input = new Float32Array(this.#history.length + block.length);
    input.set(this.#history);
    input.set(block, this.#history.length);

    const last = (input.length - this.#reach - 1) * this.#up;
    const nOut = last < this.#position ? 0 : Math.floor((last - this.#position) / this.#down) + 1;
    const out = new Float32Array(nOut);
    for (let n = 0; n < nOut; n++) out[n] = this.#at(input, (this.#position + n * this.#down) / this.#up);

    const next = this.#position + nOut * this.#down;
    const keepFrom = Math.max(0, Math.floor(next / this.#up) - this.#reach);
    this.#history = input.slice(keepFrom);
    this.#position = next - keepFrom * this.#up;
    return out;
  }

  #at(input: Float32Array, position: number): number {
    const from = Math.max(0, Math.ceil(position - this.#reach));
    const to = Math.min(input.length - 1, Math.floor(position + this.#reach));
    let sum = 0;
    for (let i = from; i <= to; i++) {
      const index = Math.abs(position - i) * this.#cutoff * STEPS;
      const low = Math.floor(index);
      if (low >= ZERO_CROSSINGS * STEPS) continue;
      const a = KERNEL[low] ?? 0;
      const b = KERNEL[low + 1] ?? 0;
      sum += (input[i] ?? 0) * (a + (b - a) * (index - low));
    }
    return sum * this.#cutoff;
  }
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}

/** Half a sinc under a Blackman window, from its centre outwards. */
function buildKernel(): Float32Array {
  const length = ZERO_CROSSINGS * STEPS;
  const kernel = new Float32Array(length + 1);
  for (let i = 0; i <= length; i++) {
    const x = i / STEPS;
    const phase = Math.PI * (1 + i / length);
    const window = 0.42 - 0.5 * Math.cos(phase) + 0.08 * Math.cos(2 * phase);
    kernel[i] = (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x)) * window;
  }
  return kernel;
}
