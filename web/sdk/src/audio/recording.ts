// Part of what the microphone heard as the protocol takes it. Loaded when the user sends it again.

import { pcm16FromFloat } from '../protocol/pcm.js';

const FRAME_MS = 20;
/** Margin around the speech, because the stream's clock is a frame or two ahead of the encoded audio. */
const BEFORE_MS = 100;
const AFTER_MS = 200;

/**
 * The part of the stream between two times as mono PCM16 at `toHz` in base64. `frames`: its last ones, of 20 ms, at `rateHz`;
 * `sentMs`: its length. A null `endMs` means now. Null if the start is no longer among the frames.
 */
export async function recordingOf(frames: Float32Array[], rateHz: number, toHz: number, startMs: number, endMs: number | null, sentMs: number): Promise<string | null> {
  const at = (ms: number) => frames.length - Math.ceil((sentMs - ms) / FRAME_MS);
  if (at(startMs) < 0 || sentMs <= startMs) return null;
  const spoken = frames.slice(Math.max(0, at(startMs - BEFORE_MS)), endMs === null ? undefined : at(endMs + AFTER_MS));
  if (spoken.length === 0) return null;
  return base64(pcm16FromFloat(await resampled(spoken, rateHz, toHz)));
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
