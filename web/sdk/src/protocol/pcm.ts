// Converts between PCM16 little-endian and float. Floats are in [-1, 1]; values outside are clipped, NaN becomes
// silence.

export function pcm16FromFloat(samples: Float32Array): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(samples.length * 2);
  const view = new DataView(bytes.buffer);
  for (let i = 0; i < samples.length; i++) {
    const sample = samples[i] || 0;
    view.setInt16(i * 2, Math.round(Math.max(-1, Math.min(1, sample)) * 32767), true);
  }
  return bytes;
}

/** A trailing odd byte is ignored. */
export function floatFromPcm16(bytes: Uint8Array): Float32Array<ArrayBuffer> {
  const samples = new Float32Array(bytes.length >> 1);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let i = 0; i < samples.length; i++) samples[i] = view.getInt16(i * 2, true) / 32768;
  return samples;
}
