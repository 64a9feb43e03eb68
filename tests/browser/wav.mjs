// Makes the fake microphone of a test from recorded speech: silence, speech, silence, speech ...
// Reads and writes mono or stereo PCM16 WAV; what else a file may hold is refused.

import { readFileSync, writeFileSync } from 'node:fs';

/** @returns {{ rateHz: number, samples: Int16Array }} the first channel of the file */
export const readWav = (path) => parseWav(readFileSync(path), path);

/** The same of a file's bytes; `path` names it in complaints. */
export function parseWav(bytes, path) {
  if (bytes.toString('latin1', 0, 4) !== 'RIFF' || bytes.toString('latin1', 8, 12) !== 'WAVE') throw new Error(`${path} is no WAV file`);
  let format = null;
  for (let at = 12; at + 8 <= bytes.length; ) {
    const name = bytes.toString('latin1', at, at + 4);
    const size = Math.min(bytes.readUInt32LE(at + 4), bytes.length - at - 8);
    const body = bytes.subarray(at + 8, at + 8 + size);
    if (name === 'fmt ') format = { channels: body.readUInt16LE(2), rateHz: body.readUInt32LE(4), bits: body.readUInt16LE(14) };
    if (name === 'data') {
      if (format?.bits !== 16) throw new Error(`${path} is not PCM16`);
      const n = Math.floor(body.length / 2 / format.channels);
      return { rateHz: format.rateHz, samples: Int16Array.from({ length: n }, (_, i) => body.readInt16LE(i * 2 * format.channels)) };
    }
    at += 8 + size + (size % 2);
  }
  throw new Error(`${path} holds no samples`);
}

/** Writes the parts one after the other; a number is that many seconds of silence, a string a WAV file. All files share one rate. */
export function composeWav(path, parts) {
  const clips = parts.map((part) => (typeof part === 'string' ? readWav(part) : part));
  const rates = new Set(clips.flatMap((clip) => (typeof clip === 'number' ? [] : [clip.rateHz])));
  if (rates.size !== 1) throw new Error(`the clips differ in rate: ${[...rates].join(', ')}`);
  const [rateHz] = rates;
  const pieces = clips.map((clip) => (typeof clip === 'number' ? new Int16Array(Math.round(clip * rateHz)) : clip.samples));
  const n = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const bytes = Buffer.alloc(44 + n * 2);
  bytes.write('RIFF', 0);
  bytes.writeUInt32LE(36 + n * 2, 4);
  bytes.write('WAVEfmt ', 8);
  bytes.writeUInt32LE(16, 16);
  bytes.writeUInt16LE(1, 20);
  bytes.writeUInt16LE(1, 22);
  bytes.writeUInt32LE(rateHz, 24);
  bytes.writeUInt32LE(rateHz * 2, 28);
  bytes.writeUInt16LE(2, 32);
  bytes.writeUInt16LE(16, 34);
  bytes.write('data', 36);
  bytes.writeUInt32LE(n * 2, 40);
  let at = 44;
  for (const piece of pieces) for (const sample of piece) at = bytes.writeInt16LE(sample, at);
  writeFileSync(path, bytes);
}
