// Splits a stream of blocks into frames of fixed length. The capture worklet uses it for its 20 ms frames.

export class Framer {
  readonly #frameSamples: number;
  #frame: Float32Array<ArrayBuffer>;
  #filled = 0;

  constructor(frameSamples: number) {
    this.#frameSamples = frameSamples;
    this.#frame = new Float32Array(frameSamples);
  }

  /** The frames completed by this block; the caller owns them. */
  push(block: Float32Array): Float32Array<ArrayBuffer>[] {
    const frames: Float32Array<ArrayBuffer>[] = [];
    for (let read = 0; read < block.length; ) {
      const n = Math.min(this.#frameSamples - this.#filled, block.length - read);
      this.#frame.set(block.subarray(read, read + n), this.#filled);
      this.#filled += n;
      read += n;
      if (this.#filled === this.#frameSamples) {
        frames.push(this.#frame);
        this.#frame = new Float32Array(this.#frameSamples);
        this.#filled = 0;
      }
    }
    return frames;
  }
}
