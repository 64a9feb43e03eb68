// Makes an event fit to be shown and copied: secrets are hidden, and audio is replaced by its size and duration.
// Pure functions.

export interface AudioFormat {
  bytesPerSecond: number;
}

/** PCM16 at 24 kHz, which a session has until it says otherwise. */
export const PCM_24K: AudioFormat = { bytesPerSecond: 48_000 };
const G711: AudioFormat = { bytesPerSecond: 8_000 };

export interface Shown {
  event: unknown;
  /** Bytes of audio that were replaced. */
  audioBytes: number;
}

export const HIDDEN = '•••';

/** Names of fields whose values are secrets wherever they are. */
const SECRET = /^(authorization|api[-_]?key|key|secret|client_secret|token|access_token|password)$/i;
/** Keys of OpenAI and of hubs, and what follows the word Bearer. */
const SECRET_TEXT = /\b(?:sk|ek)[-_][\w-]{6,}|\bBearer\s+[\w.~+/=-]+/gi;
/** Shorter texts are no audio. */
const LEAST_AUDIO = 64;
/** In the place of audio. */
const AUDIO_MARK = /^<audio: \d+ bytes>$/;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;

/** A copy of an event without secrets and audio. */
export function shown(event: unknown): Shown {
  let audioBytes = 0;
  const type = fields(event)['type'];
  const isAudioDelta = typeof type === 'string' && type.endsWith('audio.delta');
  const copy = (value: unknown, key: string, isSecret: boolean): unknown => {
    if (typeof value === 'string') {
      if (isSecret) return HIDDEN;
      if ((key === 'audio' || (key === 'delta' && isAudioDelta)) && value.length >= LEAST_AUDIO && BASE64.test(value)) {
        const bytes = sizeOf(value);
        audioBytes += bytes;
        return `<audio: ${bytes} bytes>`;
      }
      return value.replace(SECRET_TEXT, HIDDEN);
    }
    if (Array.isArray(value)) return value.map((one) => copy(one, key, isSecret));
    if (typeof value !== 'object' || value === null) return value;
    // Headers of a remote tool carry its credentials.
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, copy(one, name, isSecret || key === 'headers' || SECRET.test(name))]));
  };
  return { event: copy(event, '', false), audioBytes };
}

/**
 * A shown event as one to edit: what is hidden in it is empty, and named by its path, because dots and sizes are not what
 * was sent.
 */
export function withoutHidden(event: unknown): { event: unknown; hidden: string[] } {
  const hidden: string[] = [];
  const copy = (value: unknown, path: string): unknown => {
    if (typeof value === 'string') {
      const open = AUDIO_MARK.test(value) ? '' : value.replaceAll(HIDDEN, '');
      if (open !== value) hidden.push(path);
      return open;
    }
    if (Array.isArray(value)) return value.map((one, i) => copy(one, `${path}[${i}]`));
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, copy(one, path === '' ? name : `${path}.${name}`)]));
  };
  return { event: copy(event, ''), hidden };
}

/** Bytes that a base64 text stands for. */
export function sizeOf(base64: string): number {
  return Math.floor((base64.replace(/=+$/, '').length * 3) / 4);
}

/** The formats that a session's event names; those that it does not name are null. */
export function formatsOf(event: unknown): { input: AudioFormat | null; output: AudioFormat | null } {
  const session = fields(fields(event)['session']);
  const audio = fields(session['audio']);
  return {
    input: formatFrom(fields(audio['input'])['format'] ?? session['input_audio_format']),
    output: formatFrom(fields(audio['output'])['format'] ?? session['output_audio_format']),
  };
}

function formatFrom(format: unknown): AudioFormat | null {
  const { type, rate } = fields(format);
  const name = typeof format === 'string' ? format : type;
  if (typeof name !== 'string') return null;
  if (/pcm[ua]|g711/.test(name)) return G711;
  return { bytesPerSecond: typeof rate === 'number' && rate > 0 ? rate * 2 : PCM_24K.bytesPerSecond };
}

export function fields(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}
