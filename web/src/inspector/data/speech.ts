// Speech in events: the formats of a session, and bytes as base64. Pure functions.

import { fields } from './redact';

/** Rates of PCM16; null: the session has another format. */
export interface SessionAudio {
  inputHz: number;
  outputHz: number;
}

/** What a session has until it says otherwise. */
export const PCM_AT_24K: SessionAudio = { inputHz: 24_000, outputHz: 24_000 };

/** The formats after an event; null where the session has one that is not PCM16. */
export function audioAfter(event: unknown, before: SessionAudio | null): SessionAudio | null {
  const { session } = fields(event);
  const { audio, input_audio_format, output_audio_format } = fields(session);
  const rates = [fields(fields(audio)['input'])['format'] ?? input_audio_format, fields(fields(audio)['output'])['format'] ?? output_audio_format].map(rateOf);
  const [inputHz, outputHz] = rates.map((rate, i) => (rate === undefined ? (i === 0 ? before?.inputHz : before?.outputHz) : rate));
  return inputHz && outputHz ? { inputHz, outputHz } : null;
}

/** Undefined: it is not named; null: it is not PCM16. */
function rateOf(format: unknown): number | null | undefined {
  if (format === undefined || format === null) return undefined;
  const { type, rate } = fields(format);
  if ((typeof format === 'string' ? format : type) !== 'pcm16' && type !== 'audio/pcm') return null;
  return typeof rate === 'number' && rate > 0 ? rate : PCM_AT_24K.inputHz;
}

/** As many arguments as any browser takes. */
const CHUNK_BYTES = 8_192;

export function toBase64(bytes: Uint8Array): string {
  let text = '';
  for (let at = 0; at < bytes.length; at += CHUNK_BYTES) text += String.fromCharCode(...bytes.subarray(at, at + CHUNK_BYTES));
  return btoa(text);
}

/** Null where it is no base64. */
export function fromBase64(text: string): Uint8Array<ArrayBuffer> | null {
  try {
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  } catch {
    return null;
  }
}
