// Part of what the microphone heard as the protocol takes it. Loaded when the user sends it again.

import { WIRE_RATE_HZ } from '../protocol/frame.js';
import { pcm16FromFloat } from '../protocol/pcm.js';

/** Mono PCM16 at 24 kHz in base64; the frames have `rateHz`. */
export async function recordingOf(frames: Float32Array[], rateHz: number): Promise<string> {
  return base64(pcm16FromFloat(await atWireRate(frames, rateHz)));
}

/** Resampled by the browser. */
async function atWireRate(frames: Float32Array[], rateHz: number): Promise<Float32Array> {
  const joined = new Float32Array(frames.reduce((sum, { length }) => sum + length, 0));
  frames.reduce((at, frame) => (joined.set(frame, at), at + frame.length), 0);
  if (rateHz === WIRE_RATE_HZ) return joined;
  const context = new OfflineAudioContext(1, Math.round((joined.length * WIRE_RATE_HZ) / rateHz), WIRE_RATE_HZ);
  const buffer = context.createBuffer(1, joined.length, rateHz);
  buffer.copyToChannel(joined, 0);
  const source = context.createBufferSource();
  source.buffer = buffer;
  source.connect(context.destination);
  source.start();
  return (await context.startRendering()).getChannelData(0);
}

function base64(bytes: Uint8Array): string {
  let text = '';
  // As many arguments as any browser takes.
  for (let at = 0; at < bytes.length; at += 8_192) text += String.fromCharCode(...bytes.subarray(at, at + 8_192));
  return btoa(text);
}
