// Part of what the microphone heard as the protocol takes it. Loaded when the user sends it again.

import { pcm16FromFloat } from '../protocol/pcm.js';

/** Mono PCM16 at `toHz` in base64; the frames have `rateHz`. */
export async function recordingOf(frames: Float32Array[], rateHz: number, toHz: number): Promise<string> {
  return base64(pcm16FromFloat(await resampled(frames, rateHz, toHz)));
}

/** By the browser. */
async function resampled(frames: Float32Array[], rateHz: number, toHz: number): Promise<Float32Array> {
  const joined = new Float32Array(frames.reduce((sum, { length }) => sum + length, 0));
  frames.reduce((at, frame) => (joined.set(frame, at), at + frame.length), 0);
  if (rateHz === toHz) return joined;
  const context = new OfflineAudioContext(1, Math.round((joined.length * toHz) / rateHz), toHz);
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
